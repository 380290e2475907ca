// A fresh folder for one test, removed at the end.
#pragma once

#include <filesystem>
#include <string>

#include "common/temporary_folder.h"

namespace sluice::testing {

class TempDir {
 public:
  TempDir();

  const std::filesystem::path& path() const { return path_; }
  std::string Join(const std::string& name) const { return (path_ / name).string(); }

  // Writes a file below the folder (parents are made) and returns its path. Dies on I/O errors.
  std::string Write(const std::string& name, const std::string& contents) const;

 private:
  const TemporaryFolder folder_;
  const std::filesystem::path path_;
};

}  // namespace sluice::testing
