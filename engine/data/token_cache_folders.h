// The folders of all token caches in one place: which are in use, which were not for long, and removing those.
// Where a file system has no locks a folder cannot be known to be unused, so nothing is removed there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/file_system.h"

namespace sluice::engine {

// Keeps a folder from being removed by RemoveUnusedFolders of any process, and notes that it was used now. Movable.
class FolderUse {
 public:
  // Holds nothing.
  FolderUse() = default;
  // Holds nothing where there is no folder, or no lock to be had.
  static FolderUse Of(const std::string& folder);
  FolderUse(FolderUse&& other) noexcept;
  FolderUse& operator=(FolderUse&& other) noexcept;
  ~FolderUse();

  bool held() const { return descriptor_ >= 0; }

 private:
  explicit FolderUse(int descriptor) : descriptor_(descriptor) {}

  int descriptor_ = -1;
};

struct CacheFolder {
  std::string name;
  int64_t bytes = 0;
  int64_t last_use_ns = 0;  // since 1970
  bool in_use = false;
};

// The names of the folders to remove so that at most `max_bytes` are left, those unused for longest first; folders in
// use stay, whatever their size. Pure.
std::vector<std::string> FoldersToRemove(std::vector<CacheFolder> folders, int64_t max_bytes);

// Removes folders of `tokens_folder` that FoldersToRemove names. Folders that no cache made are left alone. Never an
// error: what cannot be removed stays.
void RemoveUnusedFolders(const std::string& tokens_folder, int64_t max_bytes, FileSystem& file_system);

}  // namespace sluice::engine
