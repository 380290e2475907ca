// Distillation from a teacher's distributions, fused with both language-model heads: the logits of student and teacher
// exist for a few tokens at a time only.
//
//   z[t, v] = hidden[t] . weight[v]                    q[t] = softmax(z[t] / temperature)           the student
//   y[t, v] = teacher_hidden[t] . teacher_weight[v]    p[t] = softmax(y[t] / temperature)           the teacher
//   log_prob[t]   = z[t, label] - log sum_v exp(z[t, v])                                    at temperature 1
//   divergence[t] = temperature^2 D(t)
//     forward KL  D = sum_v p (log p - log q)                           (Hinton, Vinyals & Dean 2015, 1503.02531)
//     reverse KL  D = sum_v q (log q - log p)                           (Gu et al. 2023, 2306.08543)
//   with top_k, D compares K + 1 probabilities: those of the teacher's K most likely tokens and those of all others
//   together, p0 = sum of the other p and q0 = sum of the other q; of tokens of equal p any may be among the K
//   dz[t, v] = d_divergence temperature D'[v] + d_nll (softmax(z[t])[v] - [v == label])
//     forward KL  D'[v] = q - p,                      for the others q (1 - p0 / q0)
//     reverse KL  D'[v] = q (log q - log p - D),      for the others q (log q0 - log p0 - D)
//
// V is the number of tokens that both models know: a head that was padded with further rows is handed in without them.
// Only the slots listed in `scored` are computed. The kernel never normalises: d_divergence and d_nll carry the loss's
// weights. Sums are in fp32 or wider whatever the storage type; with bf16 storage dz is rounded to bf16.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

enum class Divergence : uint8_t { kForwardKl, kReverseKl };

inline constexpr int64_t kDefaultDistillationBytes = int64_t{256} << 20;

// T = token slots, S = scored slots, H and G = hidden sizes of student and teacher, V = tokens. All dense, all of one
// storage type but for labels and scored.
struct DistillationInputs {
  ConstTensorView hidden;          // [T, H] bf16 or fp32: after the final norm
  ConstTensorView weight;          // [V, H]
  ConstTensorView teacher_hidden;  // [T, G]
  ConstTensorView teacher_weight;  // [V, G]
  ConstTensorView labels;          // [T] int32: 0 <= label < V in the scored slots; not read elsewhere
  ConstTensorView scored;          // [S] int32, on the device of the others: the scored slots, ascending
  Divergence divergence = Divergence::kForwardKl;
  int64_t top_k = 0;         // 0, or V and more: the whole vocabulary
  float temperature = 1.0f;  // > 0
  // Bound of what is held at once for each token of a piece, of both models; at least one row is.
  int64_t logits_bytes = kDefaultDistillationBytes;
};

struct DistillationForward {
  DistillationInputs in;
  TensorView divergence;  // [T] fp32; 0 where not scored
  TensorView log_prob;    // [T] fp32, of the label; 0 where not scored
};

struct DistillationForwardBackward {
  DistillationInputs in;
  float d_divergence = 0;          // the objective's derivative by each scored slot's divergence
  float d_nll = 0;                 // and by each scored slot's -log_prob
  TensorView divergence;           // [T] fp32; 0 where not scored
  TensorView log_prob;             // [T] fp32; 0 where not scored
  TensorView dhidden;              // [T, H] as hidden: overwritten, zero where not scored. May alias hidden.
  TensorView dweight;              // [V, H] fp32; empty if the head is frozen
  bool accumulate_dweight = true;  // false: dweight is overwritten
};

// Deterministic, on the CPU for a fixed number of threads. On CUDA in LibTorch, whose allocator gives the memory.
//
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, temperature <= 0, top_k < 0,
// logits_bytes <= 0, and on the CPU a label or slot out of range (naming its slot).
absl::Status Forward(const DistillationForward& args, Stream stream);
absl::Status ForwardBackward(const DistillationForwardBackward& args, Stream stream);

// Rows of a piece, and the most bytes that the computation of `tokens` scored slots holds at once on CUDA.
int64_t DistillationPieceRows(int64_t tokens, int64_t vocab_size, int64_t logits_bytes);
int64_t DistillationBytes(int64_t tokens, int64_t hidden_size, int64_t teacher_hidden_size, int64_t vocab_size,
                          int64_t logits_bytes);

}  // namespace sluice::kernels
