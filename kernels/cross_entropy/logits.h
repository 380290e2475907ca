// Scores and gradient of rows of logits that a product has stored: on CUDA.
//
// Bound by memory, and a row is long: 152 k logits of bf16 are 300 KB, so one block has a row. Training reads the row
// once for its sum and overwrites it with dlogits in a second pass; between the two the block keeps as much of the row
// in shared memory as there is (208 of those 300 KB), and the rest is still in the L2 cache, because few rows are under
// way. So a row moves twice its size, 2 V * size bytes, where scoring alone moves it once.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/dtype.h"
#include "kernels/stream.h"

namespace sluice::kernels::cuda {

enum class LogitsTask { kScore, kScoreThenGradient, kGradient };

// A piece of scored rows (pieces.h). All on the device.
struct LogitsRows {
  void* logits;    // [padded, stride]: overwritten with dlogits, unless the task is kScore
  int64_t stride;  // elements, rows of whole 16 bytes
  int vocabulary;
  int rows;              // scored ones
  int padded;            // rows of `logits`; dlogits of those behind the scored ones are zero
  const int32_t* slots;  // [rows]
  // [T], by slot. Null where absent.
  const int32_t* labels;
  const float* d_loss;           // of the gradient
  const float* d_entropy;        // of kGradient, or null
  const float* saved_logsumexp;  // of kGradient
  const float* saved_entropy;    // with d_entropy
  float* log_prob;               // of the scores
  float* logsumexp;              // of the scores, or null
  float* entropy;                // of the scores, or null
};

// Issued on `stream`. REQUIRES: dtype is bf16 or fp32.
absl::Status Run(LogitsTask task, DType dtype, const LogitsRows& rows, Stream stream);

}  // namespace sluice::kernels::cuda
