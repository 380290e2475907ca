#include "common/file_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice {
namespace {

absl::Status ErrorFromSystem(int error_number, const std::string& what, const std::string& path) {
  const std::string reason = std::system_category().message(error_number);  // strerror is not thread-safe
  if (error_number == ENOSPC || error_number == EDQUOT) return NoSpaceError(path, what, reason);
  return absl::Status(absl::ErrnoToStatusCode(error_number), absl::StrCat(path, ": cannot ", what, ": ", reason));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

absl::StatusOr<FileDescriptor> OpenFile(const std::string& path, int flags, const std::string& what) {
  int descriptor;
  do {
    descriptor = open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return ErrorFromSystem(errno, what, path);
  return FileDescriptor(descriptor);
}

absl::StatusOr<struct stat> StatDescriptor(const FileDescriptor& file, const std::string& path) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) return ErrorFromSystem(errno, "read", path);
  if (S_ISDIR(info.st_mode)) return ErrorFromSystem(EISDIR, "read", path);
  return info;
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status Append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      // One call writes at most 2 GiB - 4 KiB on Linux; the loop also takes short writes.
      const ssize_t written = write(file_.get(), bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
      if (written < 0) {
        if (errno == EINTR) continue;
        return ErrorFromSystem(errno, "write", path_);
      }
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (fsync(file_.get()) != 0) return ErrorFromSystem(errno, "sync", path_);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    // On Linux the descriptor is gone even when close() reports an error, so it is not tried again.
    if (close(file_.Release()) != 0 && errno != EINTR) return ErrorFromSystem(errno, "close", path_);
    return absl::OkStatus();
  }

 private:
  std::string path_;
  FileDescriptor file_;
};

class PosixMappedFile : public MappedFile {
 public:
  PosixMappedFile(void* address, size_t size) : address_(address), size_(size) {}
  ~PosixMappedFile() override {
    if (size_ > 0) munmap(address_, size_);
  }
  PosixMappedFile(const PosixMappedFile&) = delete;
  PosixMappedFile& operator=(const PosixMappedFile&) = delete;
  std::span<const std::byte> bytes() const override { return {static_cast<const std::byte*>(address_), size_}; }

 private:
  void* address_;
  size_t size_;
};

class PosixFileSystemImplementation : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> CreateFile(const std::string& path) override {
    ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, "create"));
    return std::make_unique<PosixWritableFile>(path, std::move(file));
  }

  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, O_RDONLY, "read"));
    ASSIGN_OR_RETURN(const struct stat info, StatDescriptor(file, path));
    std::string contents;
    contents.reserve(static_cast<size_t>(info.st_size));
    char buffer[1 << 16];
    for (;;) {
      const ssize_t count = read(file.get(), buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrorFromSystem(errno, "read", path);
      if (count == 0) return contents;
      contents.append(buffer, static_cast<size_t>(count));
    }
  }

  absl::StatusOr<std::shared_ptr<const MappedFile>> MapFile(const std::string& path) override {
    ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, O_RDONLY, "read"));
    ASSIGN_OR_RETURN(const struct stat info, StatDescriptor(file, path));
    const size_t size = static_cast<size_t>(info.st_size);
    if (size == 0) return std::make_shared<PosixMappedFile>(nullptr, 0);  // mmap refuses a length of 0
    void* const address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) return ErrorFromSystem(errno, "map", path);
    return std::make_shared<PosixMappedFile>(address, size);
  }

  absl::StatusOr<FolderEntry> Stat(const std::string& path) override {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return ErrorFromSystem(errno, "read", path);
    const bool is_folder = S_ISDIR(info.st_mode);
    return FolderEntry{SplitPath(path).name, is_folder, is_folder ? 0 : static_cast<uint64_t>(info.st_size)};
  }

  absl::StatusOr<std::vector<FolderEntry>> ListFolder(const std::string& path) override {
    DIR* const folder = opendir(path.c_str());
    if (folder == nullptr) return ErrorFromSystem(errno, "list", path);
    std::vector<FolderEntry> entries;
    absl::Status status;
    for (;;) {
      errno = 0;
      const dirent* const found = readdir(folder);
      if (found == nullptr) {
        if (errno != 0) status = ErrorFromSystem(errno, "list", path);
        break;
      }
      const std::string name = found->d_name;
      if (name == "." || name == "..") continue;
      absl::StatusOr<FolderEntry> entry = Stat(JoinPath(path, name));
      if (entry.ok()) {
        entries.push_back(*std::move(entry));
      } else if (!absl::IsNotFound(entry.status())) {  // gone meanwhile, or a link to nothing: not there
        status = entry.status();
        break;
      }
    }
    closedir(folder);
    RETURN_IF_ERROR(status);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }

  absl::Status CreateFolder(const std::string& path) override {
    if (mkdir(path.c_str(), 0777) != 0) return ErrorFromSystem(errno, "create folder", path);
    return absl::OkStatus();
  }

  absl::Status SyncFolder(const std::string& path) override {
    ASSIGN_OR_RETURN(const FileDescriptor folder, OpenFile(path, O_RDONLY | O_DIRECTORY, "sync folder"));
    // Some network file systems answer EINVAL: they write names through and have nothing to sync.
    if (fsync(folder.get()) != 0 && errno != EINVAL) return ErrorFromSystem(errno, "sync folder", path);
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    // A folder over a folder with contents: POSIX allows either number.
    const int error_number = errno == ENOTEMPTY ? EEXIST : errno;
    return ErrorFromSystem(error_number, absl::StrCat("rename to ", to), from);
  }

  absl::Status Exchange(const std::string& a, const std::string& b) override {
    if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return absl::OkStatus();
    if (errno == EINVAL || errno == ENOSYS)
      return absl::UnimplementedError(absl::StrCat(a, ": cannot swap names here"));
    return ErrorFromSystem(errno, absl::StrCat("swap with ", b), a);
  }

  absl::Status RemoveFile(const std::string& path) override {
    if (unlink(path.c_str()) != 0) return ErrorFromSystem(errno, "remove", path);
    return absl::OkStatus();
  }

  absl::Status RemoveFolder(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return ErrorFromSystem(error.value(), "remove folder", path);
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status NoSpaceError(const std::string& path, const std::string& what, const std::string& reason) {
  return absl::ResourceExhaustedError(absl::StrCat(path, ": cannot ", what, ": ", reason,
                                                   " (free space there, or choose a folder on another file system)"));
}

FileSystem& PosixFileSystem() {
  static PosixFileSystemImplementation& file_system = *new PosixFileSystemImplementation;
  return file_system;
}

std::string JoinPath(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

SplitPathResult SplitPath(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  if (last == std::string::npos) return {path.empty() ? "." : "/", ""};
  const size_t slash = path.find_last_of('/', last);
  if (slash == std::string::npos) return {".", path.substr(0, last + 1)};
  const size_t folder_last = path.find_last_not_of('/', slash);
  return {folder_last == std::string::npos ? "/" : path.substr(0, folder_last + 1),
          path.substr(slash + 1, last - slash)};
}

absl::Status CreateFolderWithParents(FileSystem& file_system, const std::string& path) {
  const absl::StatusOr<FolderEntry> found = file_system.Stat(path);
  if (found.ok()) {
    if (found->is_folder) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(path, ": is a file, expected a folder"));
  }
  if (!absl::IsNotFound(found.status())) return found.status();
  const std::string parent = SplitPath(path).folder;
  RETURN_IF_ERROR(CreateFolderWithParents(file_system, parent));
  const absl::Status created = file_system.CreateFolder(path);
  if (!created.ok() && !absl::IsAlreadyExists(created)) return created;  // another process may be quicker
  return file_system.SyncFolder(parent);
}

absl::Status WriteFileAtomically(FileSystem& file_system, const std::string& path, const std::string& contents) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  const absl::Status written = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, file_system.CreateFile(temporary));
    RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(contents))));
    RETURN_IF_ERROR(file->Sync());
    RETURN_IF_ERROR(file->Close());
    return file_system.Rename(temporary, path);
  }();
  if (!written.ok()) {
    file_system.RemoveFile(temporary).IgnoreError();  // gives the space back; the first error is the one to report
    return written;
  }
  return file_system.SyncFolder(SplitPath(path).folder);
}

}  // namespace sluice
