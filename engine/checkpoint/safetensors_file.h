// A safetensors file opened for reading: mapped, checked whole on opening (safetensors_header.h), tensors without a
// copy.
//
//   ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(PosixFileSystem(), path));
//   ASSIGN_OR_RETURN(const TensorData norm, file.Tensor("model.norm.weight"));
//
// Opening reads the header only; pages of a tensor are read when touched. Views stay valid as long as any copy of the
// SafetensorsFile lives (copies share the mapping). Thread-safe after opening.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "engine/checkpoint/safetensors_header.h"
#include "engine/checkpoint/tensor_data.h"

namespace sluice::engine {

class SafetensorsFile {
 public:
  // NotFound and other errors of the file system; InvalidArgument "<path>: <cause>" as ParseSafetensorsHeader says.
  static absl::StatusOr<SafetensorsFile> Open(FileSystem& file_system, const std::string& path);

  // All tensors, in the order of their bytes in the file.
  std::vector<TensorData> Tensors() const;

  // NotFound: the file holds no tensor of this name; the message names both.
  absl::StatusOr<TensorData> Tensor(const std::string& name) const;
  bool Contains(const std::string& name) const;

  const std::map<std::string, std::string>& metadata() const { return contents_->header.metadata; }
  const std::string& path() const { return contents_->path; }

  // The whole file, for checksums.
  std::span<const std::byte> bytes() const { return contents_->file->bytes(); }

 private:
  struct Contents {
    std::string path;
    std::shared_ptr<const MappedFile> file;
    SafetensorsHeader header;
    std::map<std::string, size_t> positions;  // name → index into header.tensors
  };
  explicit SafetensorsFile(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  TensorData View(const TensorEntry& entry) const;

  std::shared_ptr<const Contents> contents_;
};

}  // namespace sluice::engine
