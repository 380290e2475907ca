// A training step on random weights and tokens: what `sluice-bench train` measures.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"
#include "engine/model/causal_lm.h"
#include "engine/optim/adamw_optimizer.h"
#include "kernels/device.h"

namespace sluice::engine {

struct TrainBenchOptions {
  std::string model = "qwen2.5-0.5b";
  int64_t layers = 0;       // > 0: in place of the model's own
  int64_t tokens = 16384;   // token slots of a micro-batch
  int64_t sequence = 1024;  // longest sequence
  double shortest = 1.0;    // shortest sequence as a part of the longest; 1: all are of one length and fill the slots
  int64_t accumulate = 1;   // micro-batches of a step
  int steps = 20;           // timed ones are the second half
  kernels::Device device;
  kernels::DType dtype = kernels::DType::kBFloat16;
  CausalLmOptions model_options;
  AdamWOptimizerOptions optimizer_options;
  bool profile = false;  // of one more step: kernel by kernel
};

// Prints one line of JSON to standard output; with `profile` the kernels to standard error. Every rank calls it, with
// data of its own; rank 0 prints, and its tokens are those of one GPU.
absl::Status RunTrainBench(const TrainBenchOptions& options, Communicator& communicator);

}  // namespace sluice::engine
