// The language-model head fused with its cross-entropy: the logits exist for a few tokens at a time only.
//
//   logits[t, v] = hidden[t] . weight[v] / temperature
//   log_prob[t]  = logits[t, label] - logsumexp[t],  logsumexp[t] = log sum_v exp(logits[t, v]),  loss[t] =
//   -log_prob[t] dlogits[t, v] = d_loss[t] * (exp(logits[t, v] - logsumexp[t]) - [v == label])
//
// Tokens with label -100 are left out before the product, so they cost nothing: on instruction data most tokens are.
// The kernel never normalises: d_loss carries the loss's weights (1 / scored tokens, advantages, masks).
// Logits are in fp32 whatever the storage type; with bf16 storage dlogits is rounded to bf16 for the two products that
// use it, as PyTorch does.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

inline constexpr int32_t kIgnoredLabel = -100;
inline constexpr int64_t kDefaultLogitsBytes = int64_t{64} << 20;  // 341 rows of SmolLM2's 49,152 logits

// T = tokens, H = hidden size, V = vocabulary size. All dense.
struct CrossEntropyForward {
  ConstTensorView hidden;                      // [T, H] bf16 or fp32: after the final norm
  ConstTensorView weight;                      // [V, H] as hidden
  ConstTensorView labels;                      // [T] int32: 0 <= label < V, or kIgnoredLabel
  float temperature = 1.0f;                    // > 0
  int64_t logits_bytes = kDefaultLogitsBytes;  // bound of the logits held at once (at least one row is)
  TensorView log_prob;                         // [T] fp32: of the label; 0 where ignored
  TensorView loss;                             // [T] fp32: -log_prob; 0 where ignored; or empty
  TensorView logsumexp;                        // [T] fp32: saved for backward; 0 where ignored; or empty
};

// Recomputes the logits. Tokens with d_loss 0 are left out as ignored ones are.
struct CrossEntropyBackward {
  ConstTensorView d_loss;  // [T] fp32: the objective's derivative by loss[t]; not read where ignored
  ConstTensorView hidden;  // as in forward
  ConstTensorView weight;
  ConstTensorView labels;
  ConstTensorView logsumexp;  // [T] fp32: forward's result
  float temperature = 1.0f;
  int64_t logits_bytes = kDefaultLogitsBytes;
  TensorView dhidden;  // [T, H] as hidden: overwritten, zero where left out
  TensorView dweight;  // [V, H] fp32: accumulated into; empty if the head is frozen
};

// Both in one pass, where d_loss is known before the loss is (supervised fine-tuning): one product in four is saved.
struct CrossEntropyForwardBackward {
  ConstTensorView d_loss;  // [T] fp32; not read where ignored. A token with d_loss 0 still gets its log_prob.
  ConstTensorView hidden;
  ConstTensorView weight;
  ConstTensorView labels;
  float temperature = 1.0f;
  int64_t logits_bytes = kDefaultLogitsBytes;
  TensorView log_prob;  // [T] fp32; 0 where ignored
  TensorView loss;      // [T] fp32; 0 where ignored; or empty
  TensorView dhidden;   // [T, H] as hidden: overwritten, zero where ignored
  TensorView dweight;   // [V, H] fp32: accumulated into; empty if the head is frozen
};

// Deterministic for a fixed number of threads. On CUDA they wait for the device to count the scored tokens.
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, temperature <= 0,
// logits_bytes <= 0, and on the CPU a label out of range (naming its slot).
absl::Status Forward(const CrossEntropyForward& args, Stream stream);
absl::Status Backward(const CrossEntropyBackward& args, Stream stream);
absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream);

}  // namespace sluice::kernels
