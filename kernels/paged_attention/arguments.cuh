// What the kernels of paged attention are launched with: PagedAttention as pointers of one type and 32-bit sizes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/values.cuh"
#include "kernels/paged_attention/paged_attention.h"

namespace sluice::kernels::cuda {

template <typename T>
struct AttendArguments {
  const T* q;
  T* out;
  int64_t q_stride, out_stride;
  const T* k_cache;
  const T* v_cache;
  int64_t k_page_stride, v_page_stride;
  const int32_t* table;
  int64_t table_stride;
  const int32_t* sequences;
  const int32_t* positions;
  int page_size, kv_heads, head_dim, group, window;
  float scale;   // times log2(e): weights are powers of two
  bool packets;  // keys can be read 16 bytes at a time
};

// REQUIRES: T is the device's type of args.q.dtype.
template <typename T>
AttendArguments<T> ArgumentsOf(const PagedAttention& args) {
  constexpr float kLog2E = 1.44269504f;
  const int64_t head_dim = args.q.dim(2);
  return {.q = static_cast<const T*>(args.q.data),
          .out = static_cast<T*>(args.out.data),
          .q_stride = args.q.row_stride,
          .out_stride = args.out.row_stride,
          .k_cache = static_cast<const T*>(args.k_cache.data),
          .v_cache = static_cast<const T*>(args.v_cache.data),
          .k_page_stride = args.k_cache.row_stride,
          .v_page_stride = args.v_cache.row_stride,
          .table = args.block_table.as<int32_t>(),
          .table_stride = args.block_table.row_stride,
          .sequences = args.sequences.as<int32_t>(),
          .positions = args.positions.as<int32_t>(),
          .page_size = static_cast<int>(args.k_cache.dim(1)),
          .kv_heads = static_cast<int>(args.k_cache.dim(2)),
          .head_dim = static_cast<int>(head_dim),
          .group = static_cast<int>(args.q.dim(1) / args.k_cache.dim(2)),
          .window = static_cast<int>(std::max<int64_t>(args.window, 0)),
          .scale = args.scale * kLog2E,
          .packets = RowsStartAtPackets(args.k_cache) && head_dim % kPacketWidth<T> == 0};
}

}  // namespace sluice::kernels::cuda
