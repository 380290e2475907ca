#include "common/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

absl::Status CannotMake(const std::string& parent, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(parent, ": cannot make a temporary folder there: ", error.message(),
                                             " (set TMPDIR to a writable folder)"));
}

}  // namespace

absl::StatusOr<TemporaryFolder> TemporaryFolder::Create(std::string_view prefix) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) {
    const char* const asked = getenv("TMPDIR");
    return CannotMake(asked == nullptr ? "/tmp" : asked, error);
  }
  return CreateIn(parent, prefix);
}

absl::StatusOr<TemporaryFolder> TemporaryFolder::CreateIn(const std::filesystem::path& parent,
                                                          std::string_view prefix) {
  std::string path = (parent / absl::StrCat(std::string(prefix), "XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr) return CannotMake(parent.string(), {errno, std::generic_category()});
  return TemporaryFolder(std::move(path));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::move(other.path_)), removed_at_end_(std::exchange(other.removed_at_end_, false)) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (removed_at_end_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace sluice
