// Answers to prompts of random tokens from random weights: what `sluice-bench generate` measures.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

struct GenerateBenchOptions {
  std::string model = "qwen2.5-0.5b";
  int64_t layers = 0;    // > 0: in place of the model's own
  int64_t prompts = 32;  // of `prompt` tokens each, all different
  int64_t answers = 16;  // to each
  int64_t prompt = 64;
  int64_t answer = 256;      // tokens of each answer; the end of the text does not end it
  int64_t sequences = 512;   // at most, in a pass
  double temperature = 1.0;  // 0: the most likely token
  kernels::Device device;
  kernels::DType dtype = kernels::DType::kBFloat16;
  bool profile = false;  // of eight passes in the middle of the answers: kernel by kernel
};

// Prints one line of JSON to standard output; with `profile` the kernels to standard error.
absl::Status RunGenerateBench(const GenerateBenchOptions& options);

}  // namespace sluice::engine
