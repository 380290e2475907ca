// 16-byte loads and stores of storage types as fp32 values, for kernels that are bound by memory.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/bfloat16.h"

namespace sluice::kernels::cuda {

// The device's type for a storage type of ours.
template <typename T>
struct DeviceTypeOf {
  using type = T;
};
template <>
struct DeviceTypeOf<BFloat16> {
  using type = __nv_bfloat16;
};
template <typename T>
using DeviceType = typename DeviceTypeOf<T>::type;

__device__ __forceinline__ float ToFloat(float value) { return value; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }
// Rounds to nearest, ties to even.
template <typename T>
__device__ __forceinline__ T FromFloat(float value) {
  if constexpr (sizeof(T) == 2) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

// As many values as 16 bytes hold: 8 of bf16, 4 of fp32.
template <typename T>
struct Packet {
  static constexpr int kSize = 16 / sizeof(T);
  float v[kSize];
};

// REQUIRES of both: `at` is a multiple of 16 bytes.

// For data that no later kernel finds in the cache anyway.
template <typename T>
__device__ __forceinline__ Packet<T> LoadStreaming(const T* at) {
  const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(at));
  const T* values = reinterpret_cast<const T*>(&raw);
  Packet<T> packet;
#pragma unroll
  for (int i = 0; i < Packet<T>::kSize; ++i) packet.v[i] = ToFloat(values[i]);
  return packet;
}

template <typename T>
__device__ __forceinline__ void Store(T* at, const Packet<T>& packet) {
  uint4 raw;
  T* values = reinterpret_cast<T*>(&raw);
#pragma unroll
  for (int i = 0; i < Packet<T>::kSize; ++i) values[i] = FromFloat<T>(packet.v[i]);
  *reinterpret_cast<uint4*>(at) = raw;
}

}  // namespace sluice::kernels::cuda
