#include "engine/checkpoint/safetensors_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

std::string TemporaryPath(const std::string& path) { return path + ".tmp"; }

}  // namespace

SafetensorsWriter::SafetensorsWriter(FileSystem& file_system, std::string path, std::vector<TensorEntry> placed)
    : file_system_(file_system), path_(std::move(path)), placed_(std::move(placed)) {}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    FileSystem& file_system, const std::string& path, std::vector<TensorSpec> specs,
    const std::map<std::string, std::string>& metadata) {
  absl::StatusOr<std::vector<TensorEntry>> placed = PlaceTensors(std::move(specs));
  if (!placed.ok()) return Annotate(placed.status(), path);
  absl::StatusOr<std::string> header = SerializeSafetensorsHeader(*placed, metadata);
  if (!header.ok()) return Annotate(header.status(), path);
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter(file_system, path, *std::move(placed)));
  ASSIGN_OR_RETURN(writer->file_, file_system.CreateFile(TemporaryPath(path)));
  RETURN_IF_ERROR(writer->Write(std::as_bytes(std::span(*header))));
  writer->SkipComplete();
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (finished_ || file_ == nullptr) return;
  file_.reset();
  file_system_.RemoveFile(TemporaryPath(path_)).IgnoreError();  // nobody is left to tell; the name says what it is
}

absl::Status SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  RETURN_IF_ERROR(file_->Append(bytes));
  file_bytes_ += bytes.size();
  crc32c_ = Crc32c(bytes, crc32c_);
  return absl::OkStatus();
}

void SafetensorsWriter::SkipComplete() {
  while (current_ < placed_.size() && placed_[current_].end <= position_) ++current_;
}

absl::Status SafetensorsWriter::Append(const std::string& name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();  // also of an empty tensor, whose turn may have passed
  if (current_ == placed_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": bytes for ", name, ", but all tensors are complete"));
  }
  const TensorEntry& tensor = placed_[current_];
  if (tensor.spec.name != name) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ": bytes for ", name, ", but it is the turn of ", tensor.spec.name));
  }
  if (bytes.size() > tensor.end - position_) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", bytes.size(), " bytes for ", name, ", only ",
                                                   tensor.end - position_, " are missing"));
  }
  RETURN_IF_ERROR(Write(bytes));
  position_ += bytes.size();
  SkipComplete();
  return absl::OkStatus();
}

absl::StatusOr<FileEntry> SafetensorsWriter::Finish() {
  if (current_ < placed_.size()) {
    const TensorEntry& tensor = placed_[current_];
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": ", tensor.spec.name, " lacks ", tensor.end - position_, " of its bytes"));
  }
  RETURN_IF_ERROR(file_->Sync());
  RETURN_IF_ERROR(file_->Close());
  RETURN_IF_ERROR(file_system_.Rename(TemporaryPath(path_), path_));
  finished_ = true;
  const SplitPathResult split = SplitPath(path_);
  RETURN_IF_ERROR(file_system_.SyncFolder(split.folder));
  return FileEntry{split.name, file_bytes_, crc32c_};
}

absl::StatusOr<FileEntry> WriteSafetensors(FileSystem& file_system, const std::string& path,
                                           std::vector<TensorSpec> specs, const TensorSource& source,
                                           const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsWriter> writer,
                   SafetensorsWriter::Create(file_system, path, std::move(specs), metadata));
  for (const TensorEntry& tensor : writer->order()) {
    const absl::StatusOr<std::span<const std::byte>> bytes = source(tensor.spec);
    if (!bytes.ok()) return Annotate(bytes.status(), tensor.spec.name);
    RETURN_IF_ERROR(writer->Append(tensor.spec.name, *bytes));
  }
  return writer->Finish();
}

absl::StatusOr<FileEntry> WriteSafetensors(FileSystem& file_system, const std::string& path,
                                           const std::vector<TensorData>& tensors,
                                           const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  std::map<std::string, std::span<const std::byte>> bytes;
  for (const TensorData& tensor : tensors) {
    specs.push_back(tensor.spec);
    bytes[tensor.spec.name] = tensor.bytes;
  }
  const TensorSource source = [&](const TensorSpec& spec) -> absl::StatusOr<std::span<const std::byte>> {
    return bytes[spec.name];
  };
  return WriteSafetensors(file_system, path, std::move(specs), source, metadata);
}

}  // namespace sluice::engine
