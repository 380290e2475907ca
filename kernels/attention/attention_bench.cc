// Attention of a SmolLM2-135M layer (9 query heads, 3 key/value heads, head size 64): 1,024 slots as one sequence, as
// eight, and one of 4,096. FLOP/s counts the causal half only.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/testing/bench_buffers.h"

namespace sluice::kernels {
namespace {

using testing::BenchBuffer;

constexpr int64_t kQueryHeads = 9, kKeyHeads = 3, kHeadDim = 64;

struct Buffers {
  Buffers(int64_t slots, int64_t sequences)
      : q({slots, kQueryHeads, kHeadDim}),
        k({slots, kKeyHeads, kHeadDim}),
        v({slots, kKeyHeads, kHeadDim}),
        out({slots, kQueryHeads, kHeadDim}),
        dout({slots, kQueryHeads, kHeadDim}),
        dq({slots, kQueryHeads, kHeadDim}),
        dk({slots, kKeyHeads, kHeadDim}),
        dv({slots, kKeyHeads, kHeadDim}),
        logsumexp({kQueryHeads, slots}) {
    for (int64_t s = 0; s <= sequences; ++s) cu_seqlens.push_back(static_cast<int32_t>(slots * s / sequences));
  }

  AttentionForward Forward() {
    return {.q = q, .k = k, .v = v, .cu_seqlens = cu_seqlens, .scale = 0.125f, .out = out, .logsumexp = logsumexp};
  }
  AttentionBackward Backward() {
    return {.dout = dout,
            .q = q,
            .k = k,
            .v = v,
            .out = out,
            .logsumexp = logsumexp,
            .cu_seqlens = cu_seqlens,
            .scale = 0.125f,
            .dq = dq,
            .dk = dk,
            .dv = dv};
  }

  BenchBuffer<float> q, k, v, out, dout, dq, dk, dv, logsumexp;
  std::vector<int32_t> cu_seqlens;
};

// `products`: 2 forward (scores, output), 5 backward.
void CountFlops(benchmark::State& state, double products) {
  const auto slots = static_cast<double>(state.range(0));
  const double length = slots / static_cast<double>(state.range(1));
  state.counters["FLOP/s"] = benchmark::Counter(products * 2.0 * kQueryHeads * kHeadDim * slots * length / 2.0,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void AttentionForwardBench(benchmark::State& state) {
  Buffers buffers(state.range(0), state.range(1));
  for (auto _ : state) {
    const absl::Status status = Forward(buffers.Forward(), DefaultStream(Device::Cpu()));
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  CountFlops(state, 2.0);
}

void AttentionBackwardBench(benchmark::State& state) {
  Buffers buffers(state.range(0), state.range(1));
  absl::Status status = Forward(buffers.Forward(), DefaultStream(Device::Cpu()));
  for (auto _ : state) {
    if (status.ok()) status = Backward(buffers.Backward(), DefaultStream(Device::Cpu()));
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  CountFlops(state, 5.0);
}

BENCHMARK(AttentionForwardBench)
    ->ArgNames({"slots", "sequences"})
    ->Args({1024, 1})
    ->Args({1024, 8})
    ->Args({4096, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(AttentionBackwardBench)
    ->ArgNames({"slots", "sequences"})
    ->Args({1024, 1})
    ->Args({1024, 8})
    ->Args({4096, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace sluice::kernels
