#include "kernels/cuda/values.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/rope/backends.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) TableKernel(const int32_t* positions, const float* inv_freq, float scaling,
                                                        int half, int64_t count, float* cos_sin) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t token = at / half;
  const int i = static_cast<int>(at - token * half);
  const float angle = __fmul_rn(static_cast<float>(positions[token]), inv_freq[i]);
  float sine, cosine;
  sincosf(angle, &sine, &cosine);
  cos_sin[token * 2 * half + i] = cosine * scaling;
  cos_sin[token * 2 * half + half + i] = sine * scaling;
}

}  // namespace

absl::Status Run(const RotaryTable& args, Stream stream) {
  const int64_t half = args.inv_freq.dim(0);
  const int64_t count = args.positions.dim(0) * half;
  if (count == 0) return absl::OkStatus();
  TableKernel<<<static_cast<unsigned>(CeilDiv(count, kThreads)), kThreads, 0, HandleOf(stream)>>>(
      args.positions.as<int32_t>(), args.inv_freq.as<float>(), args.attention_scaling, static_cast<int>(half), count,
      args.cos_sin.as<float>());
  return LaunchStatus("rotary_table");
}

}  // namespace sluice::kernels::cuda
