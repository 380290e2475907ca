// A file system in memory that fails, fills up or loses power when told to. It keeps two states: what programs see, and
// what the device would hold; Sync and SyncFolder carry one into the other, exactly as the contract of FileSystem
// promises and no further.
//
//   FaultInjectionFileSystem files;
//   files.CrashAtOperation(7);            // the 7th call from now on stops half-way, all later ones fail
//   Save(files);                          // whatever the code does when its calls fail
//   files.Restart(Surviving::kSynced);    // power is back
//   EXPECT_OK(Load(files));
//
// Operations are counted over all methods, also those that only read. The root "/" exists.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/file_system.h"

namespace sluice::testing {

// What is there after a power loss.
enum class Surviving {
  kSynced,      // only what was synced: the least the device may hold
  kEverything,  // everything: the process was killed, the machine was not
  kRandom,  // per folder the synced or the current names, per file the synced bytes or the current length with a part
            // of the bytes, chosen by the seed
};

class FaultInjectionFileSystem : public FileSystem {
 public:
  FaultInjectionFileSystem();

  // Number of operations so far.
  int64_t operations() const;

  // The n-th operation from now (0 = the next) fails with `status` and does nothing; later ones work again.
  void FailAtOperation(int64_t n, absl::Status status);

  // The n-th operation from now stops half-way (an append writes half of its bytes); it and all later ones fail with
  // Aborted until Restart.
  void CrashAtOperation(int64_t n);

  // True once the operation given to FailAtOperation or CrashAtOperation was reached.
  bool fault_happened() const;

  // Files may hold this many bytes together; writing beyond is ResourceExhausted. None = no limit.
  void SetCapacity(std::optional<uint64_t> bytes);

  // Exchange answers Unimplemented, as some network file systems do.
  void ForbidExchange();

  // Drops what does not survive, forgets planned faults, and makes files opened before unusable.
  void Restart(Surviving surviving, uint64_t seed = 0);

  // Changes one byte of a file, as a failing device does.
  absl::Status FlipByte(const std::string& path, uint64_t offset);

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) override;
  absl::StatusOr<FolderEntry> Stat(const std::string& path) override;
  absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path) override;
  absl::Status CreateFolder(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Exchange(const std::string& a, const std::string& b) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveFolder(const std::string& path) override;

 private:
  class OpenFile;

  struct Node {
    bool is_folder = false;
    std::string contents, synced_contents;
    std::map<std::string, std::shared_ptr<Node>> entries, synced_entries;
  };
  struct Place {
    std::shared_ptr<Node> parent;
    std::string name;
    std::shared_ptr<Node> node;  // null: nothing of this name
  };

  // Counts an operation; an error if it is one that shall fail. `*crashes` (optional) tells the operation that shall
  // stop half-way, which then itself returns the error.
  absl::Status CountOperation(const std::string& path, bool* crashes = nullptr);
  absl::StatusOr<Place> Find(const std::string& path) const;
  absl::StatusOr<std::shared_ptr<Node>> FindFile(const std::string& path) const;
  absl::StatusOr<std::shared_ptr<Node>> FindFolder(const std::string& path) const;
  absl::Status Append(Node& node, const std::string& path, std::span<const std::byte> bytes);
  static uint64_t BytesBelow(const Node& node);
  static void EmptyFolders(Node& node);
  static void DropUnsynced(Node& node, Surviving surviving, std::mt19937_64& random);

  mutable std::mutex mutex_;
  std::shared_ptr<Node> root_;
  int64_t operations_ = 0;
  std::optional<int64_t> fault_at_;
  std::optional<absl::Status> fault_status_;  // none: a crash
  bool crashed_ = false;
  bool fault_happened_ = false;
  bool exchange_forbidden_ = false;
  int64_t generation_ = 0;
  std::optional<uint64_t> capacity_;
};

}  // namespace sluice::testing
