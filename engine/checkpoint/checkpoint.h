// A committed checkpoint opened for reading. Sizes are checked on opening, checksums when a file is read: bytes that
// come out of here are the bytes that were saved, or there is a DataLoss error that names the file. Thread-safe. Views
// of tensors live as long as a copy of their SafetensorsFile.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors_file.h"

namespace sluice::engine {

class Checkpoint {
 public:
  // Opens the folder `path`. NotFound: there is no such folder. DataLoss: no manifest (the save did not finish), a
  // damaged manifest, or a listed file that is missing or has another size. FailedPrecondition: another format version.
  // All name the path.
  static absl::StatusOr<Checkpoint> Open(FileSystem& file_system, const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  bool Contains(const std::string& name) const;

  // The contents of a small file. NotFound: the manifest lists no such file. DataLoss: the checksum differs.
  absl::StatusOr<std::string> ReadFile(const std::string& name) const;

  // A file of tensors; the whole file is read once for its checksum. Errors as ReadFile, and those of
  // SafetensorsFile::Open.
  absl::StatusOr<SafetensorsFile> OpenTensors(const std::string& name) const;

  // Reads every file and compares its checksum. DataLoss names the first that differs.
  absl::Status Verify() const;

 private:
  Checkpoint(FileSystem& file_system, std::string path, Manifest manifest);
  absl::StatusOr<FileEntry> Find(const std::string& name) const;
  absl::Status CheckContents(const FileEntry& entry, std::span<const std::byte> contents) const;

  FileSystem* file_system_;
  std::string path_;
  Manifest manifest_;
};

}  // namespace sluice::engine
