// Loads and stores of a fixed number of values: the 16 bytes of a packet, or one value where pointers or sizes are odd.
// A kernel that is a template on the width has both paths in one text; raw values wait for their use in few registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/vectors.cuh"
#include "kernels/tensor_view.h"

namespace sluice::kernels::cuda {

// As many values of T as 16 bytes hold.
template <typename T>
inline constexpr int kPacketWidth = Packet<T>::kSize;

// kWidth values of T as they lie in memory. kWidth is kPacketWidth<T> or 1.
template <typename T, int kWidth>
using Raw = std::conditional_t<kWidth == 1, T, uint4>;

template <int kWidth>
struct alignas(kWidth % 4 == 0 ? 16 : 4) Values {
  float v[kWidth];
};

// REQUIRES of the loads and stores: `at` is a multiple of the size of Raw<T, kWidth>.
template <typename T, int kWidth>
__device__ __forceinline__ Raw<T, kWidth> LoadRaw(const T* at) {
  static_assert(kWidth == 1 || kWidth == kPacketWidth<T>);
  return *reinterpret_cast<const Raw<T, kWidth>*>(at);
}

// For data that no later kernel finds in the cache anyway.
template <typename T, int kWidth>
__device__ __forceinline__ Raw<T, kWidth> LoadRawStreaming(const T* at) {
  return __ldcs(reinterpret_cast<const Raw<T, kWidth>*>(at));
}

template <typename T, int kWidth>
__device__ __forceinline__ void StoreRaw(T* at, const Raw<T, kWidth>& raw) {
  *reinterpret_cast<Raw<T, kWidth>*>(at) = raw;
}

template <typename T, int kWidth>
__device__ __forceinline__ Values<kWidth> Unpack(const Raw<T, kWidth>& raw) {
  const T* from = reinterpret_cast<const T*>(&raw);
  Values<kWidth> values;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values.v[i] = ToFloat(from[i]);
  return values;
}

// Rounds each value once.
template <typename T, int kWidth>
__device__ __forceinline__ Raw<T, kWidth> Pack(const Values<kWidth>& values) {
  Raw<T, kWidth> raw;
  T* to = reinterpret_cast<T*>(&raw);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) to[i] = FromFloat<T>(values.v[i]);
  return raw;
}

// kWidth consecutive fp32 values. REQUIRES: kWidth is 1 or a multiple of 4, and then `at` a multiple of 16 bytes.
template <int kWidth>
__device__ __forceinline__ Values<kWidth> LoadFloats(const float* at) {
  Values<kWidth> values;
  if constexpr (kWidth == 1) {
    values.v[0] = *at;
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4)
      *reinterpret_cast<float4*>(values.v + i) = *reinterpret_cast<const float4*>(at + i);
  }
  return values;
}

template <int kWidth>
__device__ __forceinline__ void StoreFloats(float* at, const Values<kWidth>& values) {
  if constexpr (kWidth == 1) {
    *at = values.v[0];
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4)
      *reinterpret_cast<float4*>(at + i) = *reinterpret_cast<const float4*>(values.v + i);
  }
}

// Whether it is a multiple of 16 bytes. True of an absent view's data.
inline bool StartsAtPacket(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// Whether every row of `view` starts at a packet. True of an absent view.
inline bool RowsStartAtPackets(const ConstTensorView& view) {
  return StartsAtPacket(view.data) && view.row_stride * SizeOf(view.dtype) % 16 == 0;
}

inline int64_t CeilDiv(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace sluice::kernels::cuda
