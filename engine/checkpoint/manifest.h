// manifest.json, the file that makes a folder a checkpoint: what belongs to it, with sizes and checksums.
// docs/checkpoint-format.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/file_entry.h"

namespace sluice::engine {

inline constexpr char kManifestName[] = "manifest.json";

// Raised when a reader of the former version would misread the folder.
inline constexpr int64_t kCheckpointFormatVersion = 1;

struct Manifest {
  int64_t step = 0;        // optimizer steps done when it was saved
  int64_t world_size = 1;  // processes that wrote it
  std::vector<FileEntry> files;
  std::string metadata_json = "{}";  // one JSON object, the caller's

  bool operator==(const Manifest&) const = default;
};

// The text of manifest.json; it carries a checksum of itself. InvalidArgument: metadata_json is not a JSON object, a
// file name is not a plain name or is given twice, a negative step, a world size below 1.
absl::StatusOr<std::string> SerializeManifest(const Manifest& manifest);

// DataLoss: not what SerializeManifest wrote, in whatever place. FailedPrecondition: another format version (the
// message says which).
absl::StatusOr<Manifest> ParseManifest(const std::string& text);

// File entries as text, for sending them from the ranks that wrote the files to the one that commits.
std::string SerializeFileEntries(const std::vector<FileEntry>& entries);
absl::StatusOr<std::vector<FileEntry>> ParseFileEntries(const std::string& text);

}  // namespace sluice::engine
