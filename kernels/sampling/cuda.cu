// A block has one row and reads it three times, twice from the cache: for its maximum, for the sums of weights
// exp((l - largest) / t) by pieces of 512 tokens, and the one piece in which the draw falls.
#include <cfloat>
#include <cmath>

#include "common/status_macros.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/philox.h"
#include "kernels/sampling/backends.h"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "sampling";
constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kPiece = 512;
constexpr int kTokensPerLane = kPiece / 32;

struct DeviceRow {
  uint64_t seed, stream, index;
  float temperature;
};

// The largest logit and the first token that has it.
struct Largest {
  float logit;
  int token;
};

__device__ __forceinline__ Largest Better(Largest a, Largest b) {
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  return a.token < b.token ? a : b;
}

__device__ Largest BlockLargest(const float* logits, int vocabulary) {
  __shared__ Largest of_warp[kWarps];
  Largest largest = {-INFINITY, vocabulary};
  for (int i = threadIdx.x; i < vocabulary; i += kThreads) {
    if (logits[i] > largest.logit) largest = {logits[i], i};  // ascending: the first stays
  }
  const auto warp_largest = [](Largest value) {
    for (int offset = 16; offset > 0; offset /= 2) {
      value = Better(
          value, {__shfl_xor_sync(kFullWarp, value.logit, offset), __shfl_xor_sync(kFullWarp, value.token, offset)});
    }
    return value;
  };
  largest = warp_largest(largest);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  return warp_largest(of_warp[threadIdx.x % 32]);
}

struct Weight {
  float largest, factor;
  __device__ __forceinline__ float Of(float logit) const { return expf((logit - largest) * factor); }
};

// The token at which the running sum of a piece's weights passes `target`. By one warp.
__device__ int TokenAt(const float* logits, int begin, int end, const Weight& weight, double target) {
  const int lane = threadIdx.x % 32;
  float weights[kTokensPerLane];
  double own = 0.0;
#pragma unroll
  for (int k = 0; k < kTokensPerLane; ++k) {
    const int token = begin + lane * kTokensPerLane + k;
    weights[k] = token < end ? weight.Of(logits[token]) : 0.0f;
    own += weights[k];
  }
  double before = own;  // becomes the sum of the lanes before
  for (int offset = 1; offset < 32; offset *= 2) {
    const double lower = __shfl_up_sync(kFullWarp, before, offset);
    if (lane >= offset) before += lower;
  }
  before -= own;
  int chosen = -1, last = -1;
  double left = target - before;
#pragma unroll
  for (int k = 0; k < kTokensPerLane; ++k) {
    if (weights[k] == 0.0f) continue;
    last = begin + lane * kTokensPerLane + k;
    left -= weights[k];
    if (chosen < 0 && left < 0.0) chosen = last;
  }
  // The first lane that has passed it; rounding may leave all sums short of it: then the last token with a weight.
  const unsigned passed = __ballot_sync(kFullWarp, chosen >= 0);
  if (passed != 0) return __shfl_sync(kFullWarp, chosen, __ffs(passed) - 1);
  const unsigned any = __ballot_sync(kFullWarp, last >= 0);
  return __shfl_sync(kFullWarp, last, any == 0 ? 0 : 31 - __clz(any));
}

__global__ void __launch_bounds__(kThreads)
    SampleKernel(const float* all_logits, int64_t stride, int vocabulary, const DeviceRow* rows, SampledToken* out) {
  extern __shared__ double piece_sums[];
  __shared__ double shared_total, shared_target;
  __shared__ int shared_piece;
  const float* logits = all_logits + blockIdx.x * stride;
  const DeviceRow row = rows[blockIdx.x];
  const Largest largest = BlockLargest(logits, vocabulary);
  if (!isfinite(largest.logit)) {
    if (threadIdx.x == 0) out[blockIdx.x] = {-1, 0.0f};
    return;
  }
  const Weight weight = {largest.logit, row.temperature == 0.0f ? 1.0f : fminf(1.0f / row.temperature, FLT_MAX)};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int pieces = (vocabulary + kPiece - 1) / kPiece;
  for (int piece = warp; piece < pieces; piece += kWarps) {
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kTokensPerLane; ++k) {
      const int token = piece * kPiece + k * 32 + lane;
      if (token < vocabulary) sum += weight.Of(logits[token]);
    }
    sum = WarpSum(sum);
    if (lane == 0) piece_sums[piece] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0.0;
    for (int piece = 0; piece < pieces; ++piece) total += piece_sums[piece];
    const PhiloxBlock random = Philox(row.seed, row.stream, row.index);
    const uint64_t bits = (uint64_t{random[0]} << 32 | random[1]) >> 11;
    double target = static_cast<double>(bits) * 0x1p-53 * total;
    int piece = 0;
    while (piece + 1 < pieces && target >= piece_sums[piece]) target -= piece_sums[piece++];
    shared_total = total;
    shared_target = target;
    shared_piece = piece;
  }
  __syncthreads();
  if (warp != 0) return;
  const double total = shared_total;
  int token = largest.token;
  if (row.temperature != 0.0f) {
    const int begin = shared_piece * kPiece;
    token = TokenAt(logits, begin, min(begin + kPiece, vocabulary), weight, shared_target);
  }
  if (lane != 0) return;
  if (!isfinite(total) || token < 0) {
    out[blockIdx.x] = {-1, 0.0f};
    return;
  }
  const double log_prob = static_cast<double>((logits[token] - weight.largest) * weight.factor) - log(total);
  out[blockIdx.x] = {token, static_cast<float>(log_prob)};
}

absl::Status Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // not to be found by the next kernel
  return absl::InternalError(std::string(kKernel) + ": " + call + ": " + cudaGetErrorString(error));
}

}  // namespace

absl::Status SampleRows(ConstTensorView logits, std::span<const SamplingRow> rows, std::span<SampledToken> out,
                        Stream stream) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto vocabulary = static_cast<int>(logits.dim(1));
  std::vector<DeviceRow> device_rows;
  for (const SamplingRow& row : rows) device_rows.push_back({row.seed, row.stream, row.index, row.temperature});
  const int64_t rows_bytes = Aligned(count * static_cast<int64_t>(sizeof(DeviceRow)));
  const int64_t out_bytes = count * static_cast<int64_t>(sizeof(SampledToken));
  ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Take(kKernel, stream, rows_bytes + out_bytes));
  const cudaStream_t handle = HandleOf(stream);
  auto* const on_device = workspace.at<DeviceRow>(0);
  auto* const drawn = workspace.at<SampledToken>(rows_bytes);
  RETURN_IF_ERROR(Check(cudaMemcpyAsync(on_device, device_rows.data(), device_rows.size() * sizeof(DeviceRow),
                                        cudaMemcpyHostToDevice, handle),
                        "copy of rows"));
  const size_t shared = static_cast<size_t>(CeilDiv(vocabulary, kPiece)) * sizeof(double);
  SampleKernel<<<static_cast<unsigned>(count), kThreads, shared, handle>>>(logits.as<float>(), logits.row_stride,
                                                                           vocabulary, on_device, drawn);
  RETURN_IF_ERROR(LaunchStatus(kKernel));
  RETURN_IF_ERROR(Check(
      cudaMemcpyAsync(out.data(), drawn, static_cast<size_t>(out_bytes), cudaMemcpyDeviceToHost, handle), "copy back"));
  return Check(cudaStreamSynchronize(handle), "wait");
}

absl::Status CopyRows(ConstTensorView logits, float* to, Stream stream) {
  const auto width = static_cast<size_t>(logits.dim(1)) * sizeof(float);
  RETURN_IF_ERROR(
      Check(cudaMemcpy2DAsync(to, width, logits.data, static_cast<size_t>(logits.row_stride) * sizeof(float), width,
                              static_cast<size_t>(logits.dim(0)), cudaMemcpyDeviceToHost, HandleOf(stream)),
            "copy of logits"));
  return Check(cudaStreamSynchronize(HandleOf(stream)), "wait");
}

}  // namespace sluice::kernels::cuda
