#include "engine/data/row_source.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/file_system.h"
#include "common/glob.h"
#include "common/status_macros.h"
#include "engine/data/content_hash.h"

namespace sluice::engine {
namespace {

bool HasParquetMagic(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  return file.read(magic, sizeof(magic)) && std::string_view(magic, 4) == "PAR1";
}

absl::StatusOr<std::unique_ptr<RowFile>> OpenFile(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(), [](unsigned char c) { return tolower(c); });
  if (extension == ".parquet" || HasParquetMagic(path)) return OpenParquetFile(path);
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json") return OpenJsonLinesFile(path);
  return absl::InvalidArgumentError(absl::StrCat(path, ": unknown kind of file; expected .jsonl or .parquet"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandGlobs(const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> found = Glob(pattern, PosixFileSystem());
    if (found.empty()) {
      const bool is_glob = pattern.find_first_of("*?[") != std::string::npos;
      return absl::NotFoundError(absl::StrCat(pattern, is_glob ? ": matches no file" : ": no such file"));
    }
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

absl::StatusOr<std::unique_ptr<RowSource>> RowSource::Open(const std::vector<std::string>& patterns, int64_t max_rows) {
  ASSIGN_OR_RETURN(std::vector<std::string> paths, ExpandGlobs(patterns));
  std::unique_ptr<RowSource> source(new RowSource());
  source->starts_ = {0};
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::unique_ptr<RowFile> file, OpenFile(path));
    if (file->rows() == 0) continue;
    source->starts_.push_back(source->starts_.back() + file->rows());
    source->files_.push_back(std::move(file));
  }
  source->rows_ = source->starts_.back();
  if (max_rows >= 0) source->rows_ = std::min(source->rows_, max_rows);
  if (source->rows_ == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::StrJoin(paths, ", "), max_rows == 0 ? ": no rows are asked for" : ": no rows"));
  }
  return source;
}

size_t RowSource::FileOf(int64_t row) const {
  return std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin() - 1;
}

absl::StatusOr<std::vector<Row>> RowSource::Read(int64_t begin, int64_t end,
                                                 const std::vector<std::string>& columns) const {
  std::vector<Row> rows;
  rows.reserve(end - begin);
  while (begin < end) {
    const size_t file = FileOf(begin);
    const int64_t part_end = std::min(end, starts_[file + 1]);
    RETURN_IF_ERROR(files_[file]->Read(begin - starts_[file], part_end - starts_[file], columns, &rows));
    begin = part_end;
  }
  return rows;
}

absl::StatusOr<std::vector<std::string>> RowSource::Columns() const { return files_[0]->Columns(); }

std::string RowSource::Where(int64_t row) const {
  const size_t file = FileOf(row);
  return files_[file]->Where(row - starts_[file]);
}

std::string RowSource::ContentHash() const {
  ContentHasher hasher;
  for (const auto& file : files_) hasher.AddField(file->content_hash());
  hasher.AddField(std::to_string(rows_));
  return hasher.Hex();
}

}  // namespace sluice::engine
