#include "engine/checkpoint/checkpoint.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::engine {

Checkpoint::Checkpoint(FileSystem& file_system, std::string path, Manifest manifest)
    : file_system_(&file_system), path_(std::move(path)), manifest_(std::move(manifest)) {}

absl::StatusOr<Checkpoint> Checkpoint::Open(FileSystem& file_system, const std::string& path) {
  RETURN_IF_ERROR(file_system.Stat(path));
  const absl::StatusOr<std::string> text = file_system.ReadFile(JoinPath(path, kManifestName));
  if (absl::IsNotFound(text.status())) {
    return absl::DataLossError(absl::StrCat(path, ": has no ", kManifestName, " (the save did not finish)"));
  }
  RETURN_IF_ERROR(text.status());
  absl::StatusOr<Manifest> manifest = ParseManifest(*text);
  if (!manifest.ok()) return Annotate(manifest.status(), path);
  Checkpoint checkpoint(file_system, path, *std::move(manifest));
  for (const FileEntry& entry : checkpoint.manifest_.files) {
    const absl::StatusOr<FolderEntry> found = file_system.Stat(JoinPath(path, entry.name));
    if (absl::IsNotFound(found.status()))
      return absl::DataLossError(absl::StrCat(path, ": ", entry.name, " is missing"));
    RETURN_IF_ERROR(found.status());
    if (found->is_folder || found->bytes != entry.bytes) {
      return absl::DataLossError(absl::StrCat(path, ": ", entry.name, " has ", found->bytes, " bytes, ", kManifestName,
                                              " says ", entry.bytes));
    }
  }
  return checkpoint;
}

absl::StatusOr<FileEntry> Checkpoint::Find(const std::string& name) const {
  for (const FileEntry& entry : manifest_.files) {
    if (entry.name == name) return entry;
  }
  return absl::NotFoundError(absl::StrCat(path_, ": ", kManifestName, " lists no file ", name));
}

bool Checkpoint::Contains(const std::string& name) const { return Find(name).ok(); }

absl::Status Checkpoint::CheckContents(const FileEntry& entry, std::span<const std::byte> contents) const {
  if (contents.size() == entry.bytes && Crc32c(contents) == entry.crc32c) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      path_, ": ", entry.name, " was changed after it was saved (checksum differs): choose another checkpoint"));
}

absl::StatusOr<std::string> Checkpoint::ReadFile(const std::string& name) const {
  ASSIGN_OR_RETURN(const FileEntry entry, Find(name));
  ASSIGN_OR_RETURN(std::string contents, file_system_->ReadFile(JoinPath(path_, name)));
  RETURN_IF_ERROR(CheckContents(entry, std::as_bytes(std::span(contents))));
  return contents;
}

absl::StatusOr<SafetensorsFile> Checkpoint::OpenTensors(const std::string& name) const {
  ASSIGN_OR_RETURN(const FileEntry entry, Find(name));
  // The checksum first: a damaged header should be told as damage, not as a malformed file.
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> mapped, file_system_->MapFile(JoinPath(path_, name)));
  RETURN_IF_ERROR(CheckContents(entry, mapped->bytes()));
  return SafetensorsFile::Open(*file_system_, JoinPath(path_, name));
}

absl::Status Checkpoint::Verify() const {
  for (const FileEntry& entry : manifest_.files) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> mapped,
                     file_system_->MapFile(JoinPath(path_, entry.name)));
    RETURN_IF_ERROR(CheckContents(entry, mapped->bytes()));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
