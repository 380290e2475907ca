#include "common/testing/temp_dir.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace sluice::testing {

namespace {

TemporaryFolder CreateOrDie() {
  auto folder = TemporaryFolder::Create("sluice_test_");
  if (!folder.ok()) {
    std::fprintf(stderr, "%s\n", folder.status().ToString().c_str());
    std::abort();
  }
  return *std::move(folder);
}

}  // namespace

TempDir::TempDir() : folder_(CreateOrDie()), path_(folder_.path()) {}

std::string TempDir::Write(const std::string& name, const std::string& contents) const {
  const std::filesystem::path target = path_ / name;
  std::filesystem::create_directories(target.parent_path());
  std::ofstream out(target, std::ios::binary);
  out << contents;
  out.close();
  if (!out) {
    std::perror(target.c_str());
    std::abort();
  }
  return target.string();
}

}  // namespace sluice::testing
