#include "kernels/matmul/algorithm_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace sluice::kernels::cuda {
namespace {

std::string Header(const std::string& machine) { return absl::StrCat("sluice gemm 1 ", machine); }

bool ParseLine(const std::string& line, std::string* key, SavedAlgorithm* saved) {
  const std::vector<std::string> fields = absl::StrSplit(line, " | ");
  if (fields.size() != 3 || !absl::SimpleAtod(fields[2], &saved->microseconds)) return false;
  const std::vector<std::string> words = absl::StrSplit(fields[1], ' ');
  if (words.size() != 8) return false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!absl::SimpleHexAtoi(words[i], &saved->algorithm.data[i])) return false;
  }
  *key = fields[0];
  return true;
}

}  // namespace

absl::StatusOr<SavedAlgorithms> ReadAlgorithms(const std::string& path, const std::string& machine) {
  SavedAlgorithms algorithms;
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != Header(machine)) return algorithms;
  for (int number = 2; std::getline(file, line); ++number) {
    std::string key;
    SavedAlgorithm saved;
    if (!ParseLine(line, &key, &saved)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": not a line of a GEMM tuning file; delete the file to tune anew"));
    }
    algorithms[key] = saved;
  }
  return algorithms;
}

absl::Status WriteAlgorithms(const std::string& path, const std::string& machine, const SavedAlgorithms& algorithms) {
  const std::string temporary = absl::StrCat(path, ".", getpid());
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << Header(machine) << "\n";
    for (const auto& [key, saved] : algorithms) {
      file << key << " |";
      for (const uint64_t word : saved.algorithm.data) file << absl::StrFormat(" %x", word);
      file << absl::StrFormat(" | %.3f\n", saved.microseconds);
    }
    file.flush();
    if (!file) {
      std::remove(temporary.c_str());
      return absl::UnavailableError(absl::StrCat("cannot write ", temporary, ": ", std::strerror(errno)));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot replace ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cuda
