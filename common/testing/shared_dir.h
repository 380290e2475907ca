// The folder of large shared test inputs, which is not part of the repository. Tests that need it skip without it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace sluice::testing {

// $SLUICE_SHARED, or ../shared beside the repository (tests run in the repository's root). nullopt where it is not
// there.
inline std::optional<std::filesystem::path> SharedDir() {
  const char* from_environment = std::getenv("SLUICE_SHARED");
  std::filesystem::path folder = from_environment != nullptr ? from_environment : "../shared";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return std::nullopt;
  return folder;
}

}  // namespace sluice::testing
