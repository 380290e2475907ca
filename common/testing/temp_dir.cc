#include "common/testing/temp_dir.h"

#include <stdlib.h>

#include <cstdio>
#include <fstream>

namespace sluice::testing {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice_test_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    perror("mkdtemp");
    abort();
  }
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::Write(const std::string& name, const std::string& contents) const {
  const std::filesystem::path target = path_ / name;
  std::filesystem::create_directories(target.parent_path());
  std::ofstream out(target, std::ios::binary);
  out << contents;
  out.close();
  if (!out) {
    perror(target.c_str());
    abort();
  }
  return target.string();
}

}  // namespace sluice::testing
