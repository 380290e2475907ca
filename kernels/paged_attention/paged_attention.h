// Causal attention of new tokens to a key/value cache that is kept in pages, and the writing of keys and values there.
//
// A batch mixes sequences that decode (one new token) with sequences whose prompt is computed in chunks (many). Query i
// of a sequence stands at position p = context_length - new_tokens + i and sees the keys 0 .. p of its own pages, or
// with a window the last `window` of them, itself included; scale, grouped queries and sums are those of
// kernels/attention/attention.h. The new tokens' own keys and values must be in their pages before: append, then
// attend.
//
// Source of the page table: Kwon et al. 2023 (PagedAttention), section 4.1.
//
// On the CPU the result for a query is a function of the query and of the keys and values it sees alone: the same bits
// whatever else is in the batch, however its prompt was cut into chunks and wherever its pages lie. On CUDA, where
// which query belongs to which sequence is told on the device, so that calls can be captured, it also depends on T: few
// tokens are shared by more blocks.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

// T = new tokens of all sequences, S = sequences, M = pages a row of the table has room for, N = pages of the cache,
// P = tokens a page holds, Hq = query heads (a multiple of Hkv), Hkv = key/value heads, D = head size.

// Token slot s of a cache is entry s % P of page s / P.
struct PagedAppend {
  ConstTensorView k;      // [T, Hkv, D] bf16 or fp32, strided
  ConstTensorView v;      // [T, Hkv, D] as k, strided
  ConstTensorView slots;  // [T] int32, each once: 0 <= slot < N * P; on CUDA also -1: this token is left out
  TensorView k_cache;     // [N, P, Hkv, D] as k, strided: only the named slots are written
  TensorView v_cache;     // [N, P, Hkv, D] as k, strided
};

struct PagedAttention {
  ConstTensorView q;            // [T, Hq, D] bf16 or fp32, strided
  ConstTensorView k_cache;      // [N, P, Hkv, D] as q, strided
  ConstTensorView v_cache;      // [N, P, Hkv, D] as q, strided
  ConstTensorView block_table;  // [S, M] int32, strided: a sequence's pages in order, behind them any page
  // On the CPU:
  std::span<const int32_t> cu_seqlens;       // [S + 1] from 0, ascending, last <= T: new tokens
  std::span<const int32_t> context_lengths;  // [S] tokens in the cache, the new ones included
  // On CUDA:
  ConstTensorView sequences;  // [T] int32: row of block_table of each query; -1: its row of `out` is left alone
  ConstTensorView positions;  // [T] int32: p of each query; its pages are in the table
  float scale = 0;            // usually 1 / sqrt(D)
  int64_t window = 0;         // <= 0: all before it
  TensorView out;             // [T, Hq, D] as q, strided: on the CPU rows >= cu_seqlens[S] are left alone
};

// Deterministic. Scratch on the CPU: about 64 * (L + D) floats a thread, L the longest context.
// Return InvalidArgument, naming the argument, for mismatched shapes, types or devices, heads that do not divide; on
// the CPU also for lengths that do not fit the table or one another and for a slot or page that the cache does not
// have; on CUDA for D > 256.
absl::Status Run(const PagedAppend& args, Stream stream);
absl::Status Forward(const PagedAttention& args, Stream stream);

}  // namespace sluice::kernels
