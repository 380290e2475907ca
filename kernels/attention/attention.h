// Causal self-attention over packed sequences with grouped queries, forward and backward.
//
//   s[i, j] = scale * q[i] . k[j]   for j <= i and, with a window, j > i - window; j and i in the same sequence
//   out[i]  = sum_j exp(s[i, j] - logsumexp[i]) v[j],   logsumexp[i] = log sum_j exp(s[i, j])
//
// Source: Vaswani et al. 2017; grouped queries: Ainslie et al. 2023 (query head h reads key/value head h / (Hq / Hkv));
// window: Jiang et al. 2023 (Mistral 7B), counting the token itself. Scores and sums are in fp32 whatever the storage
// type, and never exist for more than one block of queries of one sequence and head.
//
// On CUDA, bf16 with dense arrays and D a multiple of 8 up to 128 runs in cuDNN, and then only reads the sequences
// where they lie on the device, so that a captured call serves every batch: bring `bounds`. Everything else on CUDA
// (fp32) goes sequence by sequence through LibTorch; it needs no bounds and cannot be captured.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = token slots, S = sequences, B = room for sequences (>= S), Hq = query heads (a multiple of Hkv), Hkv = key/value
// heads, D = head size.

// Derives, on the device, what cuDNN wants to know about a batch's sequences. Once per batch.
struct SequenceBounds {
  ConstTensorView cu_seqlens;  // [B + 1] int32 on the device: from 0, ascending; behind entry S the last repeats
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  TensorView bounds;  // [4, B + 1] int32: lengths (B of them), then starts in elements of q, of k, of logsumexp
};
absl::Status Run(const SequenceBounds& args, Stream stream);

struct AttentionForward {
  ConstTensorView q;                    // [T, Hq, D] bf16 or fp32, strided
  ConstTensorView k;                    // [T, Hkv, D] as q, strided
  ConstTensorView v;                    // [T, Hkv, D] as q, strided
  std::span<const int32_t> cu_seqlens;  // [S + 1] on the host, from 0, ascending, last <= T
  ConstTensorView bounds;               // [4, B + 1] int32 of the same sequences; empty on the CPU
  int64_t longest = 0;                  // with bounds: no sequence is longer, also in later replays; at most T
  float scale = 0;                      // usually 1 / sqrt(D)
  int64_t window = 0;                   // tokens each query sees, itself included; <= 0: all before it
  TensorView out;                       // [T, Hq, D] as q, strided: slots >= cu_seqlens[S] become zero
  TensorView logsumexp;                 // [Hq, T] fp32: saved for backward; zero in the tail (with bounds: anything)
};

struct AttentionBackward {
  ConstTensorView dout;                 // [T, Hq, D] as q, strided
  ConstTensorView q, k, v;              // as in forward
  ConstTensorView out;                  // [T, Hq, D] forward's result
  ConstTensorView logsumexp;            // [Hq, T] fp32 forward's result
  std::span<const int32_t> cu_seqlens;  // as in forward
  ConstTensorView bounds;               // as in forward
  int64_t longest = 0;                  // as in forward
  float scale = 0;
  int64_t window = 0;
  // With bounds: false lets the sums over queries of dq be taken in the order in which blocks finish, which is up to a
  // tenth faster for long sequences; true costs a workspace that grows with B * longest^2.
  bool deterministic = true;
  TensorView dq;  // [T, Hq, D] as q, strided: overwritten, zero in the tail
  TensorView dk;  // [T, Hkv, D] as q, strided: overwritten, zero in the tail
  TensorView dv;  // [T, Hkv, D] as q, strided: overwritten, zero in the tail
};

// Deterministic (see there), on the CPU also across numbers of threads. Scratch on the CPU, with L the longest
// sequence: about L * (2 D + 132) floats a thread forward, L * (3 D + 204) backward and 2 * T * Hq * D floats in all.
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, heads that do not divide, or
// cu_seqlens that do not start at 0, descend or pass T.
absl::Status Forward(const AttentionForward& args, Stream stream);
absl::Status Backward(const AttentionBackward& args, Stream stream);

// The attention of a model whose batches all have one shape.
struct AttentionShape {
  int64_t tokens = 0, sequences = 0, longest = 0;  // T, B, longest
  int64_t q_heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  int64_t window = 0;
  bool deterministic = true;
};

// Builds cuDNN's plans for the shape (about a second the first time) and returns the workspace that Forward and
// Backward take with it. Later calls of that shape find the plans. REQUIRES: a shape that cuDNN runs; a CUDA stream.
absl::StatusOr<int64_t> PrepareAttention(const AttentionShape& shape, bool backward, Stream stream);

// Whether cuDNN runs this on CUDA.
bool IsCapturableAttention(DType dtype, int64_t head_dim);

}  // namespace sluice::kernels
