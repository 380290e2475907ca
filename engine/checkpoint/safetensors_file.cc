#include "engine/checkpoint/safetensors_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::engine {

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(FileSystem& file_system, const std::string& path) {
  auto contents = std::make_shared<Contents>();
  contents->path = path;
  ASSIGN_OR_RETURN(contents->file, file_system.MapFile(path));
  absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(contents->file->bytes());
  if (!header.ok()) return Annotate(header.status(), path);
  contents->header = *std::move(header);
  for (size_t i = 0; i < contents->header.tensors.size(); ++i) {
    contents->positions[contents->header.tensors[i].spec.name] = i;
  }
  return SafetensorsFile(std::move(contents));
}

TensorData SafetensorsFile::View(const TensorEntry& entry) const {
  return TensorData{entry.spec, bytes().subspan(contents_->header.data_offset + entry.begin, entry.end - entry.begin)};
}

std::vector<TensorData> SafetensorsFile::Tensors() const {
  std::vector<TensorData> tensors;
  tensors.reserve(contents_->header.tensors.size());
  for (const TensorEntry& entry : contents_->header.tensors) tensors.push_back(View(entry));
  return tensors;
}

absl::StatusOr<TensorData> SafetensorsFile::Tensor(const std::string& name) const {
  const auto found = contents_->positions.find(name);
  if (found == contents_->positions.end()) {
    return absl::NotFoundError(absl::StrCat(path(), ": holds no tensor ", name));
  }
  return View(contents_->header.tensors[found->second]);
}

bool SafetensorsFile::Contains(const std::string& name) const { return contents_->positions.contains(name); }

}  // namespace sluice::engine
