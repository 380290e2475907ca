// A private folder of this process (mode 0700), removed with all that is in it when the object goes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice {

class TemporaryFolder {
 public:
  // Makes `$TMPDIR/<prefix>XXXXXX` (/tmp where TMPDIR is not set). Unavailable, naming the parent and what to do: it
  // cannot be made there. REQUIRES: prefix is a plain file name; a short one where unix sockets will live in the folder
  // (their paths have at most 107 bytes).
  static absl::StatusOr<TemporaryFolder> Create(std::string_view prefix);
  // The same below `parent`.
  static absl::StatusOr<TemporaryFolder> CreateIn(const std::filesystem::path& parent, std::string_view prefix);

  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

  // Leaves the folder where it is.
  void Keep() { removed_at_end_ = false; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
  bool removed_at_end_ = true;
};

}  // namespace sluice
