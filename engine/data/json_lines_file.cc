#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/content_hash.h"
#include "engine/data/row_file.h"
#include "engine/template/jinja/json.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

absl::Status SystemError(const std::string& path, const char* action) {
  const int error = errno;
  return absl::Status(absl::ErrnoToStatusCode(error), absl::StrCat(path, ": cannot ", action, ": ", strerror(error)));
}

bool IsJsonSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// What other files begin with that people hand over by mistake.
absl::Status CheckFirstBytes(const std::string& path, std::string_view bytes) {
  if (bytes.starts_with("\x1F\x8B")) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": compressed with gzip; unpack it first"));
  }
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": UTF-16 text; UTF-8 is expected"));
  }
  return absl::OkStatus();
}

class JsonLinesFile : public RowFile {
 public:
  explicit JsonLinesFile(std::string path) : path_(std::move(path)) {}
  ~JsonLinesFile() override {
    if (descriptor_ >= 0) close(descriptor_);
  }

  absl::Status Open() {
    descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) return SystemError(path_, "open");
    struct stat file;
    if (fstat(descriptor_, &file) != 0) return SystemError(path_, "open");
    if (S_ISDIR(file.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path_, ": is a folder, not a file"));
    return FindLines();
  }

  int64_t rows() const override { return static_cast<int64_t>(lines_.size()); }
  const std::string& content_hash() const override { return content_hash_; }

  absl::Status Read(int64_t begin, int64_t end, const std::vector<std::string>& columns,
                    std::vector<Row>* out) const override {
    if (begin == end) return absl::OkStatus();
    const int64_t start = lines_[begin].offset;
    std::string text(lines_[end - 1].offset + lines_[end - 1].bytes - start, '\0');
    RETURN_IF_ERROR(ReadAt(start, &text));
    for (int64_t row = begin; row < end; ++row) {
      const Line& line = lines_[row];
      absl::StatusOr<Row> parsed = ParseLine(std::string_view(text).substr(line.offset - start, line.bytes));
      if (!parsed.ok()) return Annotate(parsed.status(), Where(row));
      out->push_back(std::move(parsed).value());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> Columns() const override {
    std::vector<std::string> names;
    if (lines_.empty()) return names;
    std::vector<Row> first;
    RETURN_IF_ERROR(Read(0, 1, {}, &first));
    for (const auto& [name, value] : first[0].dict().items()) names.push_back(name.string());
    return names;
  }

  // Line numbers are only wanted in messages, so they are counted when asked for rather than kept for each row.
  std::string Where(int64_t row) const override {
    int64_t line_number = 1;
    std::string block(kBlockBytes, '\0');
    for (int64_t offset = 0; offset < lines_[row].offset; offset += static_cast<int64_t>(block.size())) {
      block.resize(std::min<int64_t>(kBlockBytes, lines_[row].offset - offset));
      if (!ReadAt(offset, &block).ok()) break;
      line_number += std::count(block.begin(), block.end(), '\n');
    }
    return absl::StrCat(path_, ":", line_number);
  }

 private:
  struct Line {
    int64_t offset;
    int64_t bytes;  // without the LF
  };

  static absl::StatusOr<Row> ParseLine(std::string_view line) {
    if (const size_t valid = ValidUtf8Prefix(line); valid < line.size()) {
      return absl::InvalidArgumentError(absl::StrCat("not valid UTF-8 at byte ", valid));
    }
    absl::StatusOr<Row> row = jinja::ParseJson(line);
    if (!row.ok()) return Annotate(row.status(), "expected one JSON object per line");
    if (!row->is_dict()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected one JSON object per line, found a value of type ", jinja::TypeName(*row)));
    }
    return row;
  }

  absl::Status FindLines() {
    ContentHasher hasher;
    std::string block(kBlockBytes, '\0');
    int64_t offset = 0;  // of the block
    int64_t line_start = 0;
    bool line_is_blank = true;
    const auto end_line = [&](int64_t line_end) {
      if (!line_is_blank) lines_.push_back({line_start, line_end - line_start});
      line_start = line_end + 1;
      line_is_blank = true;
    };
    while (true) {
      ssize_t count = pread(descriptor_, block.data(), kBlockBytes, offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return SystemError(path_, "read");
      if (count == 0) break;
      const std::string_view bytes(block.data(), static_cast<size_t>(count));
      hasher.Add(bytes);
      size_t at = 0;
      if (offset == 0) {
        RETURN_IF_ERROR(CheckFirstBytes(path_, bytes));
        if (bytes.starts_with(kByteOrderMark)) at = line_start = kByteOrderMark.size();
      }
      while (at < bytes.size()) {
        const size_t newline = std::min(bytes.find('\n', at), bytes.size());
        for (; line_is_blank && at < newline; ++at) line_is_blank = IsJsonSpace(bytes[at]);
        if (newline < bytes.size()) end_line(offset + static_cast<int64_t>(newline));
        at = newline + 1;
      }
      offset += count;
    }
    if (line_start < offset) end_line(offset);
    content_hash_ = hasher.Hex();
    return absl::OkStatus();
  }

  absl::Status ReadAt(int64_t offset, std::string* out) const {
    size_t done = 0;
    while (done < out->size()) {
      const ssize_t count =
          pread(descriptor_, out->data() + done, out->size() - done, offset + static_cast<int64_t>(done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return SystemError(path_, "read");
      if (count == 0) return absl::DataLossError(absl::StrCat(path_, ": became shorter while it was read"));
      done += static_cast<size_t>(count);
    }
    return absl::OkStatus();
  }

  std::string path_;
  int descriptor_ = -1;
  std::vector<Line> lines_;  // those with a row
  std::string content_hash_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowFile>> OpenJsonLinesFile(const std::string& path) {
  auto file = std::make_unique<JsonLinesFile>(path);
  RETURN_IF_ERROR(file->Open());
  return file;
}

}  // namespace sluice::engine
