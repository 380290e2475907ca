// The file operations that durable data needs, behind an interface so that tests can make the n-th one fail.
//
// Durability: bytes of a file survive a power loss once WritableFile::Sync returned OK; a name (created, renamed,
// removed) survives once SyncFolder of the folder that holds it returned OK. Rename is atomic: after a crash the target
// is the old or the new one. Paths: absolute or relative to the process's folder, with '/' between parts. Links are
// followed. Errors: NotFound, AlreadyExists, PermissionDenied and so on as absl::ErrnoToStatusCode maps them; a full
// disk or quota is ResourceExhausted. Every message names the path and says what the system said. Threads: a FileSystem
// may be used from any thread; one WritableFile from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

// A file open for writing from its start to its end. The destructor closes without syncing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // Adds bytes at the end. After an error the file may hold any prefix of them.
  virtual absl::Status Append(std::span<const std::byte> bytes) = 0;

  // Returns when everything appended so far is on the device.
  virtual absl::Status Sync() = 0;

  // Closes the file; no other call may follow. Reports errors that the system kept back until now.
  virtual absl::Status Close() = 0;
};

// The whole contents of a file, readable until the object is destroyed. For the POSIX file system this is a private
// read-only mapping: opening costs no reading and no memory, and another process that truncates the file meanwhile
// makes reading past its new end a bus error. Files of committed folders are never changed in place, so this cannot
// happen there.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

struct FolderEntry {
  std::string name;  // without the folder
  bool is_folder = false;
  uint64_t bytes = 0;  // size of a file; 0 for a folder
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates the file, or empties one that exists.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) = 0;

  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  virtual absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) = 0;

  // What the path leads to. NotFound: nothing is there.
  virtual absl::StatusOr<FolderEntry> Stat(const std::string& path) = 0;

  // Entries of a folder, ordered by name, without "." and "..".
  virtual absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path) = 0;

  // Makes one folder; its parent must exist. AlreadyExists: the name is taken (by a folder or a file).
  virtual absl::Status CreateFolder(const std::string& path) = 0;

  // Returns when the names in the folder are on the device.
  virtual absl::Status SyncFolder(const std::string& path) = 0;

  // Gives `from` the name `to`. A file takes the place of a file. A folder may only take the place of an empty folder;
  // otherwise AlreadyExists and nothing has changed.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;

  // Swaps two names atomically. Unimplemented: the file system below cannot (some network file systems).
  virtual absl::Status Exchange(const std::string& a, const std::string& b) = 0;

  virtual absl::Status RemoveFile(const std::string& path) = 0;

  // Removes a folder and everything below it; OK if there is none. Not atomic.
  virtual absl::Status RemoveFolder(const std::string& path) = 0;
};

// The machine's file system. The object lives as long as the process.
FileSystem& PosixFileSystem();

// "a" and "b" → "a/b"; "a/" and "b" → "a/b"; "" and "b" → "b".
std::string JoinPath(const std::string& folder, const std::string& name);

// "a/b/" and "a/b" → folder "a", name "b"; "b" → folder ".", name "b"; "/b" → folder "/", name "b".
struct SplitPathResult {
  std::string folder;
  std::string name;
};
SplitPathResult SplitPath(const std::string& path);

// The error of a full disk or quota, worded for the user: "<path>: cannot <what>: <reason> (free space there, ...)".
absl::Status NoSpaceError(const std::string& path, const std::string& what, const std::string& reason);

// Makes the folder and its missing parents durably: each new name is synced. OK if it is there already.
absl::Status CreateFolderWithParents(FileSystem& file_system, const std::string& path);

// Writes a small file so that a crash at any time leaves the former file or the new one: temporary name in the same
// folder, Sync, Rename, SyncFolder. Two writers of one path at one time are not supported.
absl::Status WriteFileAtomically(FileSystem& file_system, const std::string& path, const std::string& contents);

}  // namespace sluice
