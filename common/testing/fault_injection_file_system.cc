#include "common/testing/fault_injection_file_system.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"

namespace sluice::testing {
namespace {

class MemoryContents : public MappedFile {
 public:
  explicit MemoryContents(std::string contents) : contents_(std::move(contents)) {}
  std::span<const std::byte> bytes() const override { return std::as_bytes(std::span(contents_)); }

 private:
  std::string contents_;
};

absl::Status NoSuchFile(const std::string& path) { return absl::NotFoundError(absl::StrCat(path, ": No such file")); }
absl::Status PowerIsOff(const std::string& path) { return absl::AbortedError(absl::StrCat(path, ": power is off")); }

}  // namespace

class FaultInjectionFileSystem::OpenFile : public WritableFile {
 public:
  OpenFile(FaultInjectionFileSystem* owner, std::string path, std::shared_ptr<Node> node)
      : owner_(owner), path_(std::move(path)), node_(std::move(node)), generation_(owner->generation_) {}

  absl::Status Append(std::span<const std::byte> bytes) override {
    std::lock_guard lock(owner_->mutex_);
    if (generation_ != owner_->generation_) return PowerIsOff(path_);
    return owner_->Append(*node_, path_, bytes);
  }

  absl::Status Sync() override {
    std::lock_guard lock(owner_->mutex_);
    if (generation_ != owner_->generation_) return PowerIsOff(path_);
    RETURN_IF_ERROR(owner_->CountOperation(path_));
    node_->synced_contents = node_->contents;
    return absl::OkStatus();
  }

  absl::Status Close() override {
    std::lock_guard lock(owner_->mutex_);
    if (generation_ != owner_->generation_) return PowerIsOff(path_);
    return owner_->CountOperation(path_);
  }

 private:
  FaultInjectionFileSystem* owner_;
  std::string path_;
  std::shared_ptr<Node> node_;
  int64_t generation_;
};

FaultInjectionFileSystem::FaultInjectionFileSystem() : root_(std::make_shared<Node>()) { root_->is_folder = true; }

int64_t FaultInjectionFileSystem::operations() const {
  std::lock_guard lock(mutex_);
  return operations_;
}

void FaultInjectionFileSystem::FailAtOperation(int64_t n, absl::Status status) {
  std::lock_guard lock(mutex_);
  fault_at_ = operations_ + n;
  fault_status_ = std::move(status);
  fault_happened_ = false;
}

void FaultInjectionFileSystem::CrashAtOperation(int64_t n) {
  std::lock_guard lock(mutex_);
  fault_at_ = operations_ + n;
  fault_status_.reset();
  fault_happened_ = false;
}

bool FaultInjectionFileSystem::fault_happened() const {
  std::lock_guard lock(mutex_);
  return fault_happened_;
}

void FaultInjectionFileSystem::SetCapacity(std::optional<uint64_t> bytes) {
  std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

void FaultInjectionFileSystem::ForbidExchange() {
  std::lock_guard lock(mutex_);
  exchange_forbidden_ = true;
}

void FaultInjectionFileSystem::Restart(Surviving surviving, uint64_t seed) {
  std::lock_guard lock(mutex_);
  std::mt19937_64 random(seed);
  DropUnsynced(*root_, surviving, random);
  ++generation_;
  crashed_ = false;
  fault_at_.reset();
}

void FaultInjectionFileSystem::DropUnsynced(Node& node, Surviving surviving, std::mt19937_64& random) {
  if (surviving == Surviving::kSynced || (surviving == Surviving::kRandom && random() % 2 == 0)) {
    node.contents = node.synced_contents;
    node.entries = node.synced_entries;  // all or none of a folder: journals keep the two halves of a rename together
  } else if (surviving == Surviving::kRandom && node.contents != node.synced_contents) {
    // The length may reach the device before the bytes do.
    const size_t kept = random() % (node.contents.size() + 1);
    std::fill(node.contents.begin() + static_cast<ptrdiff_t>(kept), node.contents.end(), '\0');
  }
  node.synced_contents = node.contents;
  node.synced_entries = node.entries;
  for (auto& [name, child] : node.entries) DropUnsynced(*child, surviving, random);
}

absl::Status FaultInjectionFileSystem::FlipByte(const std::string& path, uint64_t offset) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const std::shared_ptr<Node> node, FindFile(path));
  if (offset >= node->contents.size()) return absl::OutOfRangeError(absl::StrCat(path, ": shorter than ", offset));
  node->contents[offset] = static_cast<char>(node->contents[offset] ^ 0x20);
  node->synced_contents = node->contents;
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::CountOperation(const std::string& path, bool* crashes) {
  if (crashed_) return PowerIsOff(path);
  const bool faulty = fault_at_ == operations_;
  ++operations_;
  if (!faulty) return absl::OkStatus();
  fault_happened_ = true;
  if (fault_status_.has_value()) return *fault_status_;
  crashed_ = true;
  if (crashes == nullptr) return PowerIsOff(path);
  *crashes = true;
  return absl::OkStatus();
}

absl::StatusOr<FaultInjectionFileSystem::Place> FaultInjectionFileSystem::Find(const std::string& path) const {
  Place place{root_, "", root_};
  const std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  for (const std::string& part : parts) {
    if (part == ".") continue;
    if (place.node == nullptr) return NoSuchFile(path);
    if (!place.node->is_folder) return absl::FailedPreconditionError(absl::StrCat(path, ": Not a directory"));
    const auto found = place.node->entries.find(part);
    place = Place{place.node, part, found == place.node->entries.end() ? nullptr : found->second};
  }
  return place;
}

absl::StatusOr<std::shared_ptr<FaultInjectionFileSystem::Node>> FaultInjectionFileSystem::FindFile(
    const std::string& path) const {
  ASSIGN_OR_RETURN(const Place place, Find(path));
  if (place.node == nullptr) return NoSuchFile(path);
  if (place.node->is_folder) return absl::FailedPreconditionError(absl::StrCat(path, ": Is a directory"));
  return place.node;
}

absl::StatusOr<std::shared_ptr<FaultInjectionFileSystem::Node>> FaultInjectionFileSystem::FindFolder(
    const std::string& path) const {
  ASSIGN_OR_RETURN(const Place place, Find(path));
  if (place.node == nullptr) return NoSuchFile(path);
  if (!place.node->is_folder) return absl::FailedPreconditionError(absl::StrCat(path, ": Not a directory"));
  return place.node;
}

absl::Status FaultInjectionFileSystem::Append(Node& node, const std::string& path, std::span<const std::byte> bytes) {
  bool crashes = false;
  RETURN_IF_ERROR(CountOperation(path, &crashes));
  size_t count = crashes ? bytes.size() / 2 : bytes.size();
  bool full = false;
  if (capacity_.has_value()) {
    const uint64_t used = BytesBelow(*root_);
    const uint64_t free = used < *capacity_ ? *capacity_ - used : 0;
    full = count > free;
    if (full) count = free;
  }
  node.contents.append(reinterpret_cast<const char*>(bytes.data()), count);
  if (crashes) return PowerIsOff(path);
  if (full) return NoSpaceError(path, "write", "No space left on device");
  return absl::OkStatus();
}

uint64_t FaultInjectionFileSystem::BytesBelow(const Node& node) {
  uint64_t bytes = node.contents.size();
  for (const auto& [name, child] : node.entries) bytes += BytesBelow(*child);
  return bytes;
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultInjectionFileSystem::CreateFile(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(path));
  ASSIGN_OR_RETURN(Place place, Find(path));
  if (place.node != nullptr && place.node->is_folder) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": Is a directory"));
  }
  if (place.node == nullptr) {
    place.node = std::make_shared<Node>();
    place.parent->entries[place.name] = place.node;
  }
  place.node->contents.clear();
  return std::make_unique<OpenFile>(this, path, place.node);
}

absl::StatusOr<std::string> FaultInjectionFileSystem::ReadFile(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(path));
  ASSIGN_OR_RETURN(const std::shared_ptr<Node> node, FindFile(path));
  return node->contents;
}

absl::StatusOr<std::shared_ptr<const MappedFile>> FaultInjectionFileSystem::MapFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::string contents, ReadFile(path));
  return std::make_shared<MemoryContents>(std::move(contents));
}

absl::StatusOr<FolderEntry> FaultInjectionFileSystem::Stat(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(path));
  ASSIGN_OR_RETURN(const Place place, Find(path));
  if (place.node == nullptr) return NoSuchFile(path);
  return FolderEntry{place.name, place.node->is_folder, place.node->contents.size()};
}

absl::StatusOr<std::vector<FolderEntry>> FaultInjectionFileSystem::ListFolder(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(path));
  ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, FindFolder(path));
  std::vector<FolderEntry> entries;
  for (const auto& [name, child] : folder->entries) {
    entries.push_back(FolderEntry{name, child->is_folder, child->contents.size()});
  }
  return entries;
}

absl::Status FaultInjectionFileSystem::CreateFolder(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(path));
  ASSIGN_OR_RETURN(const Place place, Find(path));
  if (place.node != nullptr) return absl::AlreadyExistsError(absl::StrCat(path, ": File exists"));
  auto folder = std::make_shared<Node>();
  folder->is_folder = true;
  place.parent->entries[place.name] = std::move(folder);
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::SyncFolder(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(path));
  ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, FindFolder(path));
  folder->synced_entries = folder->entries;
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::Rename(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(from));
  ASSIGN_OR_RETURN(const Place source, Find(from));
  if (source.node == nullptr) return NoSuchFile(from);
  ASSIGN_OR_RETURN(const Place target, Find(to));
  if (target.node != nullptr && target.node != source.node) {
    if (target.node->is_folder != source.node->is_folder || !target.node->entries.empty()) {
      return absl::AlreadyExistsError(absl::StrCat(from, ": cannot rename to ", to, ": File exists"));
    }
  }
  source.parent->entries.erase(source.name);
  target.parent->entries[target.name] = source.node;
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::Exchange(const std::string& a, const std::string& b) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(a));
  if (exchange_forbidden_) return absl::UnimplementedError(absl::StrCat(a, ": cannot swap names here"));
  ASSIGN_OR_RETURN(const Place first, Find(a));
  ASSIGN_OR_RETURN(const Place second, Find(b));
  if (first.node == nullptr) return NoSuchFile(a);
  if (second.node == nullptr) return NoSuchFile(b);
  first.parent->entries[first.name] = second.node;
  second.parent->entries[second.name] = first.node;
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::RemoveFile(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CountOperation(path));
  RETURN_IF_ERROR(FindFile(path));
  ASSIGN_OR_RETURN(const Place place, Find(path));
  place.parent->entries.erase(place.name);
  return absl::OkStatus();
}

absl::Status FaultInjectionFileSystem::RemoveFolder(const std::string& path) {
  std::lock_guard lock(mutex_);
  bool crashes = false;
  RETURN_IF_ERROR(CountOperation(path, &crashes));
  ASSIGN_OR_RETURN(const Place place, Find(path));
  if (place.node == nullptr) return absl::OkStatus();
  if (crashes) {  // half of the entries are gone
    for (size_t left = place.node->entries.size() / 2; left > 0; --left) {
      place.node->entries.erase(place.node->entries.begin());
    }
    return PowerIsOff(path);
  }
  EmptyFolders(*place.node);
  place.parent->entries.erase(place.name);
  return absl::OkStatus();
}

// As the device sees it, each folder below loses its entries on its own: that may last although the removal of the top
// does not.
void FaultInjectionFileSystem::EmptyFolders(Node& node) {
  for (auto& [name, child] : node.entries) EmptyFolders(*child);
  node.entries.clear();
}

}  // namespace sluice::testing
