// Writes a safetensors file as a stream: all names, dtypes and shapes first, then the bytes tensor by tensor, so that
// no more than one piece of one tensor need be in memory.
//
// The file appears under its name whole or not at all: it is written as "<path>.tmp", synced, and renamed by Finish,
// which also syncs the folder. Each tensor starts at a multiple of its element size. One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "engine/checkpoint/file_entry.h"
#include "engine/checkpoint/safetensors_header.h"
#include "engine/checkpoint/tensor_data.h"

namespace sluice::engine {

class SafetensorsWriter {
 public:
  // Starts the file and writes its header. `file_system` must outlive the writer.
  // InvalidArgument as PlaceTensors and SerializeSafetensorsHeader say; errors of the file system (ResourceExhausted:
  // disk full).
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(FileSystem& file_system, const std::string& path,
                                                                   std::vector<TensorSpec> specs,
                                                                   const std::map<std::string, std::string>& metadata);

  // Without Finish: removes what was written.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The order in which the tensors' bytes are wanted: a pure function of the specs, so processes that gather a tensor
  // together agree on it.
  const std::vector<TensorEntry>& order() const { return placed_; }

  // Adds the next bytes of tensor `name`, in one or several pieces. InvalidArgument: the tensor before is not complete,
  // this is not the next one, or the bytes are more than its shape takes.
  absl::Status Append(const std::string& name, std::span<const std::byte> bytes);

  // Ends, syncs and names the file. FailedPrecondition: a tensor is not complete (the message names it).
  absl::StatusOr<FileEntry> Finish();

 private:
  SafetensorsWriter(FileSystem& file_system, std::string path, std::vector<TensorEntry> placed);
  absl::Status Write(std::span<const std::byte> bytes);
  void SkipComplete();

  FileSystem& file_system_;
  const std::string path_;
  const std::vector<TensorEntry> placed_;
  std::unique_ptr<WritableFile> file_;
  bool finished_ = false;
  size_t current_ = 0;     // index into placed_ of the tensor being written
  uint64_t position_ = 0;  // data bytes written
  uint64_t file_bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// The bytes of a tensor, valid until the next call. Called once for each tensor, in the writer's order.
using TensorSource = std::function<absl::StatusOr<std::span<const std::byte>>(const TensorSpec& spec)>;

// Writes a whole file from a source. Errors of the source come back annotated with the tensor's name.
absl::StatusOr<FileEntry> WriteSafetensors(FileSystem& file_system, const std::string& path,
                                           std::vector<TensorSpec> specs, const TensorSource& source,
                                           const std::map<std::string, std::string>& metadata);

// Writes a whole file from tensors in memory.
absl::StatusOr<FileEntry> WriteSafetensors(FileSystem& file_system, const std::string& path,
                                           const std::vector<TensorData>& tensors,
                                           const std::map<std::string, std::string>& metadata);

}  // namespace sluice::engine
