// Causal self-attention over packed sequences with grouped queries, forward and backward.
//
//   s[i, j] = scale * q[i] . k[j]   for j <= i and, with a window, j > i - window; j and i in the same sequence
//   out[i]  = sum_j exp(s[i, j] - logsumexp[i]) v[j],   logsumexp[i] = log sum_j exp(s[i, j])
//
// Source: Vaswani et al. 2017; grouped queries: Ainslie et al. 2023 (query head h reads key/value head h / (Hq / Hkv));
// window: Jiang et al. 2023 (Mistral 7B), counting the token itself. Scores and sums are in fp32 whatever the storage
// type, and never exist for more than one block of queries of one sequence and head.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = token slots, S = sequences, Hq = query heads (a multiple of Hkv), Hkv = key/value heads, D = head size.
struct AttentionForward {
  ConstTensorView q;                    // [T, Hq, D] bf16 or fp32, strided
  ConstTensorView k;                    // [T, Hkv, D] as q, strided
  ConstTensorView v;                    // [T, Hkv, D] as q, strided
  std::span<const int32_t> cu_seqlens;  // [S + 1] on the host, from 0, ascending, last <= T
  float scale = 0;                      // usually 1 / sqrt(D)
  int64_t window = 0;                   // tokens each query sees, itself included; <= 0: all before it
  TensorView out;                       // [T, Hq, D] as q, strided: slots >= cu_seqlens[S] become zero
  TensorView logsumexp;                 // [Hq, T] fp32: saved for backward; zero in the tail
};

struct AttentionBackward {
  ConstTensorView dout;                 // [T, Hq, D] as q, strided
  ConstTensorView q, k, v;              // as in forward
  ConstTensorView out;                  // [T, Hq, D] forward's result
  ConstTensorView logsumexp;            // [Hq, T] fp32 forward's result
  std::span<const int32_t> cu_seqlens;  // as in forward
  float scale = 0;
  int64_t window = 0;
  TensorView dq;  // [T, Hq, D] as q, strided: overwritten, zero in the tail
  TensorView dk;  // [T, Hkv, D] as q, strided: overwritten, zero in the tail
  TensorView dv;  // [T, Hkv, D] as q, strided: overwritten, zero in the tail
};

// Deterministic, on the CPU also across numbers of threads. Scratch on the CPU, with L the longest sequence: about
// L * (2 D + 132) floats a thread forward, L * (3 D + 204) backward and 2 * T * Hq * D floats in all.
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, heads that do not divide, or
// cu_seqlens that do not start at 0, descend or pass T.
absl::Status Forward(const AttentionForward& args, Stream stream);
absl::Status Backward(const AttentionBackward& args, Stream stream);

}  // namespace sluice::kernels
