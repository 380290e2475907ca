#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/swiglu/activation.cuh"
#include "kernels/swiglu/backends.h"
#include "kernels/visit_dtype.h"

// One thread has a few packets of 16 bytes of the gate and the matching ones of up (and dy), all loaded before the
// first is used. Every value is read once and written once: 3 I values a token forward, 5 I (6 I with y) backward. A
// thread writes only where it has read, so dgate_up may take gate_up's place. Sizes that are no whole packets go value
// by value.

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kForwardUnroll = 4;   // packets a thread, times two arrays
constexpr int kBackwardUnroll = 2;  // times three arrays

// Where the packets of one thread lie. A block has kUnroll * kThreads consecutive packets of [T, I]; its first one's
// row takes a 64-bit division, the others count on from there in 32 bits.
template <int kWidth, int kUnroll>
struct Packets {
  int64_t begin, count;  // of this thread's first packet; of all packets
  int64_t first_row;
  unsigned first_of_row, packets_of_row;

  __device__ __forceinline__ Packets(int64_t tokens, int size) {
    packets_of_row = static_cast<unsigned>(size / kWidth);
    count = tokens * packets_of_row;
    const int64_t block_begin = static_cast<int64_t>(blockIdx.x) * (kUnroll * kThreads);
    begin = block_begin + threadIdx.x;
    first_row = block_begin / packets_of_row;
    first_of_row = static_cast<unsigned>(block_begin - first_row * packets_of_row) + threadIdx.x;
  }

  __device__ __forceinline__ bool Has(int k) const { return begin + k * kThreads < count; }
  // In [T, I].
  __device__ __forceinline__ int64_t InHalf(int k) const { return (begin + k * kThreads) * kWidth; }
  // The gate's in [T, 2I].
  __device__ __forceinline__ int64_t InPacked(int k) const {
    const unsigned of_row = first_of_row + k * kThreads;
    const unsigned rows = of_row / packets_of_row;
    return ((first_row + rows) * 2 * packets_of_row + (of_row - rows * packets_of_row)) * kWidth;
  }
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) ForwardKernel(const T* gate_up, T* y, int64_t tokens, int size) {
  const Packets<kWidth, kForwardUnroll> packets(tokens, size);
  Raw<T, kWidth> raw_gate[kForwardUnroll], raw_up[kForwardUnroll];
#pragma unroll
  for (int k = 0; k < kForwardUnroll; ++k) {
    if (!packets.Has(k)) break;
    const T* gate = gate_up + packets.InPacked(k);
    raw_gate[k] = LoadRawStreaming<T, kWidth>(gate);
    raw_up[k] = LoadRawStreaming<T, kWidth>(gate + size);
  }
#pragma unroll
  for (int k = 0; k < kForwardUnroll; ++k) {
    if (!packets.Has(k)) break;
    const Values<kWidth> gate = Unpack<T, kWidth>(raw_gate[k]);
    const Values<kWidth> up = Unpack<T, kWidth>(raw_up[k]);
    Values<kWidth> result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result.v[i] = Activation(gate.v[i], Sigmoid<T>(gate.v[i]), up.v[i]);
    StoreRaw<T, kWidth>(y + packets.InHalf(k), Pack<T, kWidth>(result));
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    BackwardKernel(const T* dy, const T* gate_up, T* dgate_up, T* y, int64_t tokens, int size) {
  const Packets<kWidth, kBackwardUnroll> packets(tokens, size);
  Raw<T, kWidth> raw_dy[kBackwardUnroll], raw_gate[kBackwardUnroll], raw_up[kBackwardUnroll];
#pragma unroll
  for (int k = 0; k < kBackwardUnroll; ++k) {
    if (!packets.Has(k)) break;
    const T* gate = gate_up + packets.InPacked(k);
    raw_dy[k] = LoadRawStreaming<T, kWidth>(dy + packets.InHalf(k));
    raw_gate[k] = LoadRawStreaming<T, kWidth>(gate);
    raw_up[k] = LoadRawStreaming<T, kWidth>(gate + size);
  }
#pragma unroll
  for (int k = 0; k < kBackwardUnroll; ++k) {
    if (!packets.Has(k)) break;
    const Values<kWidth> d = Unpack<T, kWidth>(raw_dy[k]);
    const Values<kWidth> gate = Unpack<T, kWidth>(raw_gate[k]);
    const Values<kWidth> up = Unpack<T, kWidth>(raw_up[k]);
    Values<kWidth> dgate, dup, result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float sigmoid = Sigmoid<T>(gate.v[i]);
      dgate.v[i] = d.v[i] * up.v[i] * sigmoid * (1.0f + gate.v[i] * (1.0f - sigmoid));
      dup.v[i] = d.v[i] * gate.v[i] * sigmoid;
      result.v[i] = Activation(gate.v[i], sigmoid, up.v[i]);
    }
    T* to = dgate_up + packets.InPacked(k);
    StoreRaw<T, kWidth>(to, Pack<T, kWidth>(dgate));
    StoreRaw<T, kWidth>(to + size, Pack<T, kWidth>(dup));
    if (y != nullptr) StoreRaw<T, kWidth>(y + packets.InHalf(k), Pack<T, kWidth>(result));
  }
}

bool InPackets(int64_t size, DType dtype, std::initializer_list<const void*> arrays) {
  if (size * SizeOf(dtype) % 16 != 0) return false;
  for (const void* array : arrays) {
    if (reinterpret_cast<uintptr_t>(array) % 16 != 0) return false;
  }
  return true;
}

unsigned Blocks(int64_t tokens, int64_t size, int width, int unroll) {
  return static_cast<unsigned>(CeilDiv(tokens * (size / width), unroll * kThreads));
}

}  // namespace

absl::Status Forward(const SwigluForward& args, Stream stream) {
  const int64_t tokens = args.y.dim(0);
  const int64_t size = args.y.dim(1);
  if (tokens * size == 0) return absl::OkStatus();
  const bool in_packets = InPackets(size, args.y.dtype, {args.gate_up.data, args.y.data});
  VisitFloating(args.y.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    const auto launch = [&](auto kernel, int width) {
      kernel<<<Blocks(tokens, size, width, kForwardUnroll), kThreads, 0, HandleOf(stream)>>>(
          static_cast<const T*>(args.gate_up.data), static_cast<T*>(args.y.data), tokens, static_cast<int>(size));
    };
    in_packets ? launch(ForwardKernel<T, kPacketWidth<T>>, kPacketWidth<T>) : launch(ForwardKernel<T, 1>, 1);
  });
  return LaunchStatus("swiglu");
}

absl::Status Backward(const SwigluBackward& args, Stream stream) {
  const int64_t tokens = args.dy.dim(0);
  const int64_t size = args.dy.dim(1);
  if (tokens * size == 0) return absl::OkStatus();
  const bool in_packets =
      InPackets(size, args.dy.dtype, {args.dy.data, args.gate_up.data, args.dgate_up.data, args.y.data});
  VisitFloating(args.dy.dtype, [&](auto zero) {
    using T = DeviceType<decltype(zero)>;
    const auto launch = [&](auto kernel, int width) {
      kernel<<<Blocks(tokens, size, width, kBackwardUnroll), kThreads, 0, HandleOf(stream)>>>(
          static_cast<const T*>(args.dy.data), static_cast<const T*>(args.gate_up.data),
          static_cast<T*>(args.dgate_up.data), static_cast<T*>(args.y.data), tokens, static_cast<int>(size));
    };
    in_packets ? launch(BackwardKernel<T, kPacketWidth<T>>, kPacketWidth<T>) : launch(BackwardKernel<T, 1>, 1);
  });
  return LaunchStatus("swiglu");
}

}  // namespace sluice::kernels::cuda
