// The language-model head fused with its cross-entropy and entropy: the logits exist for a few tokens at a time only.
//
//   logits[t, v] = hidden[t] . weight[v] / temperature
//   logsumexp[t] = log sum_v exp(logits[t, v])
//   log_prob[t]  = logits[t, label] - logsumexp[t]
//   entropy[t]   = logsumexp[t] - sum_v p[t, v] logits[t, v],    p[t, v] = exp(logits[t, v] - logsumexp[t])
//   dlogits[t, v] = d_loss[t] (p[t, v] - [v == label]) - d_entropy[t] p[t, v] (log p[t, v] + entropy[t])
//
// with d_loss the objective's derivative by -log_prob[t] and d_entropy the one by entropy[t].
//
// Only the slots listed in `scored` are computed: the others cost nothing, and on instruction data most tokens are
// others. The kernel never normalises: d_loss carries the loss's weights (1 / scored tokens, advantages, masks).
// Sums are in fp32 whatever the storage type. With bf16 storage dlogits, and on CUDA the logits that they are computed
// from, are rounded to bf16 where they are stored, as PyTorch's are. Forward on CUDA stores no logits, in bf16 with
// rows of whole 16 bytes: it sums them in fp32 where they are computed.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

inline constexpr int64_t kDefaultLogitsBytes = int64_t{64} << 20;

// T = token slots, S = scored slots, H = hidden size, V = vocabulary size. All dense.
struct CrossEntropyInputs {
  ConstTensorView hidden;                      // [T, H] bf16 or fp32: after the final norm
  ConstTensorView weight;                      // [V, H] as hidden
  ConstTensorView labels;                      // [T] int32: 0 <= label < V in the scored slots; not read elsewhere
  ConstTensorView scored;                      // [S] int32, on the device of the others: the scored slots, ascending
  float temperature = 1.0f;                    // > 0
  int64_t logits_bytes = kDefaultLogitsBytes;  // bound of the logits held at once; at least one row is
};

struct CrossEntropyForward {
  CrossEntropyInputs in;
  TensorView log_prob;   // [T] fp32: of the label; 0 where not scored
  TensorView logsumexp;  // [T] fp32: saved for backward; 0 where not scored; or empty
  TensorView entropy;    // [T] fp32: saved for backward; 0 where not scored; or empty
};

// Computes the logits once more. For objectives whose d_loss depends on the log-probabilities.
struct CrossEntropyBackward {
  CrossEntropyInputs in;
  ConstTensorView d_loss;          // [T] fp32; not read where not scored
  ConstTensorView d_entropy;       // [T] fp32, or empty
  ConstTensorView logsumexp;       // [T] fp32: forward's result
  ConstTensorView entropy;         // [T] fp32: forward's result; empty iff d_entropy is
  TensorView dhidden;              // [T, H] as hidden: overwritten, zero where not scored. May alias hidden.
  TensorView dweight;              // [V, H] fp32; empty if the head is frozen
  bool accumulate_dweight = true;  // false: dweight is overwritten
};

// Both in one pass, where d_loss is known before the loss is (supervised fine-tuning): one product in four is saved.
struct CrossEntropyForwardBackward {
  CrossEntropyInputs in;
  ConstTensorView d_loss;          // [T] fp32; not read where not scored
  TensorView log_prob;             // [T] fp32; 0 where not scored
  TensorView dhidden;              // [T, H] as hidden: overwritten, zero where not scored. May alias hidden.
  TensorView dweight;              // [V, H] fp32; empty if the head is frozen
  bool accumulate_dweight = true;  // false: dweight is overwritten
};

// Deterministic, on the CPU for a fixed number of threads. On CUDA nothing waits for the device; the workspace they
// take is CrossEntropyWorkspace.
//
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, temperature <= 0,
// logits_bytes <= 0, and on the CPU a label or slot out of range (naming its slot). On CUDA a label out of range makes
// its log_prob NaN.
absl::Status Forward(const CrossEntropyForward& args, Stream stream);
absl::Status Backward(const CrossEntropyBackward& args, Stream stream);
absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream);

// Bytes of workspace on CUDA for at most `tokens` scored slots: one piece of logits, and the rows of hidden and dhidden
// that belong to it. The products' own workspace (matmul.h) is beside it.
int64_t CrossEntropyWorkspace(int64_t tokens, int64_t hidden_size, int64_t vocab_size, DType dtype,
                              int64_t logits_bytes);

}  // namespace sluice::kernels
