#include "engine/data/token_cache_folders.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string_view>
#include <utility>

namespace sluice::engine {
namespace {

// Whoever uses a folder holds a shared lock on this file in it; its time of change is the folder's last use.
constexpr char kUseFile[] = "in-use";
// A folder gets this name before its files go, so that nobody takes it for a cache meanwhile.
constexpr std::string_view kRemovedPrefix = "removed-";
constexpr size_t kKeyDigits = 32;

bool IsKey(std::string_view name) {
  return name.size() == kKeyDigits && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A descriptor of the use file with the lock, or -1.
int OpenLocked(const std::string& path, int operation) {
  int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);  // another user's folder
  if (descriptor < 0) return -1;
  int result;
  do {
    result = flock(descriptor, operation);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return descriptor;
  close(descriptor);
  return -1;
}

bool IsSameFile(int descriptor, const std::string& path) {
  struct stat opened, named;
  return fstat(descriptor, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

void NoteUse(int descriptor) {
  // The kernel's own time of change is coarse: uses a few milliseconds apart would be one.
  timespec now[2];
  clock_gettime(CLOCK_REALTIME, &now[0]);
  now[1] = now[0];
  if (futimens(descriptor, now) != 0) futimens(descriptor, nullptr);  // another user's file
}

int64_t LastUseNs(const std::string& folder) {
  struct stat info;
  // A folder of an earlier version has no use file.
  if (stat(JoinPath(folder, kUseFile).c_str(), &info) != 0 && stat(folder.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

FolderUse FolderUse::Of(const std::string& folder) {
  const std::string path = JoinPath(folder, kUseFile);
  while (true) {
    const int descriptor = OpenLocked(path, LOCK_SH);
    if (descriptor < 0) return FolderUse();
    FolderUse use(descriptor);
    // Else the folder was removed while we waited for the lock; perhaps it has been made again.
    if (IsSameFile(descriptor, path)) {
      NoteUse(descriptor);
      return use;
    }
  }
}

FolderUse::FolderUse(FolderUse&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderUse& FolderUse::operator=(FolderUse&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FolderUse::~FolderUse() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::vector<std::string> FoldersToRemove(std::vector<CacheFolder> folders, int64_t max_bytes) {
  std::sort(folders.begin(), folders.end(), [](const CacheFolder& a, const CacheFolder& b) {
    return a.last_use_ns != b.last_use_ns ? a.last_use_ns < b.last_use_ns : a.name < b.name;
  });
  int64_t total = 0;
  for (const CacheFolder& folder : folders) total += folder.bytes;
  std::vector<std::string> removed;
  for (const CacheFolder& folder : folders) {
    if (total <= max_bytes) break;
    if (folder.in_use) continue;
    total -= folder.bytes;
    removed.push_back(folder.name);
  }
  return removed;
}

void RemoveUnusedFolders(const std::string& tokens_folder, int64_t max_bytes, FileSystem& file_system) {
  const auto entries = file_system.ListFolder(tokens_folder);
  if (!entries.ok()) return;
  std::vector<CacheFolder> folders;
  std::map<std::string, int> locks;  // of the folders that nobody uses; held until they are gone
  for (const FolderEntry& entry : *entries) {
    const std::string path = JoinPath(tokens_folder, entry.name);
    if (!entry.is_folder) continue;
    if (std::string_view(entry.name).starts_with(kRemovedPrefix)) {
      file_system.RemoveFolder(path).IgnoreError();  // an earlier removal was interrupted
      continue;
    }
    const auto files = file_system.ListFolder(path);
    if (!IsKey(entry.name) || !files.ok()) continue;
    CacheFolder& folder = folders.emplace_back();
    folder.name = entry.name;
    for (const FolderEntry& file : *files) folder.bytes += static_cast<int64_t>(file.bytes);
    folder.last_use_ns = LastUseNs(path);
    const int lock = OpenLocked(JoinPath(path, kUseFile), LOCK_EX | LOCK_NB);
    folder.in_use = lock < 0;
    if (lock >= 0) locks[entry.name] = lock;
  }
  for (const std::string& name : FoldersToRemove(folders, max_bytes)) {
    const std::string aside = JoinPath(tokens_folder, std::string(kRemovedPrefix) + name);
    if (!file_system.Rename(JoinPath(tokens_folder, name), aside).ok()) continue;
    file_system.RemoveFolder(aside).IgnoreError();
  }
  for (const auto& [name, lock] : locks) close(lock);
}

}  // namespace sluice::engine
