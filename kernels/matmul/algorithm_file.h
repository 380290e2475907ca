// The file that keeps chosen algorithms from one process to the next.
//
//   sluice gemm 1 <cuBLASLt version> <GPU name>
//   <key> | <algorithm: 8 words in hex> | <microseconds>
#pragma once

#include <cublasLt.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::kernels::cuda {

struct SavedAlgorithm {
  cublasLtMatmulAlgo_t algorithm;
  double microseconds = 0;
};
using SavedAlgorithms = std::map<std::string, SavedAlgorithm>;  // by ToString(GemmKey)

// Empty where the file is not there, or is of another `machine` (the header's last two fields).
// InvalidArgument, naming the file's line, if it is damaged.
absl::StatusOr<SavedAlgorithms> ReadAlgorithms(const std::string& path, const std::string& machine);

// Replaces the file whole.
absl::Status WriteAlgorithms(const std::string& path, const std::string& machine, const SavedAlgorithms& algorithms);

}  // namespace sluice::kernels::cuda
