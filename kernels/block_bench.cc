// Everything but matmuls and attention that one SmolLM2-135M block does at 1,024 tokens in fp32, forward and backward,
// and the optimizer's share of one block: what must stay small beside the matmuls. Bytes/s counts each argument once.
#include <benchmark/benchmark.h>

#include <functional>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/bias/bias.h"
#include "kernels/embedding/embedding.h"
#include "kernels/flat/flat.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/testing/bench_buffers.h"

namespace sluice::kernels {
namespace {

using testing::BenchBuffer;

constexpr int64_t kTokens = 1024, kHidden = 576, kIntermediate = 1536, kHeadDim = 64, kVocabulary = 49152;
constexpr int64_t kBlockParameters = 3'540'096;
const Stream kCpu = DefaultStream(Device::Cpu());

void Loop(benchmark::State& state, int64_t floats, const std::function<absl::Status()>& call) {
  for (auto _ : state) {
    const absl::Status status = call();
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  state.SetBytesProcessed(state.iterations() * floats * static_cast<int64_t>(sizeof(float)));
}

std::vector<int32_t> Counting() {
  std::vector<int32_t> numbers(kTokens);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
  return numbers;
}

void RmsNormForwardBench(benchmark::State& state) {
  BenchBuffer<float> x({kTokens, kHidden}), residual({kTokens, kHidden}), weight({kHidden}), y({kTokens, kHidden}),
      rstd({kTokens});
  Loop(state, 4 * kTokens * kHidden, [&] {
    return Forward(RmsNormForward{.x = x,
                                  .residual = residual,
                                  .weight = weight,
                                  .eps = 1e-5f,
                                  .residual_out = residual,
                                  .y = y,
                                  .rstd = rstd},
                   kCpu);
  });
}

void RmsNormBackwardBench(benchmark::State& state) {
  BenchBuffer<float> dy({kTokens, kHidden}), r({kTokens, kHidden}), weight({kHidden}), rstd({kTokens}),
      dr({kTokens, kHidden}), dweight({kHidden});
  Loop(state, 4 * kTokens * kHidden, [&] {
    return Backward(RmsNormBackward{.dy = dy, .r = r, .weight = weight, .rstd = rstd, .dr = dr, .dweight = dweight},
                    kCpu);
  });
}

void RopeBench(benchmark::State& state) {
  BenchBuffer<float> q({kTokens, 9, kHeadDim}), k({kTokens, 3, kHeadDim}), inv_freq({kHeadDim / 2});
  const std::vector<int32_t> positions = Counting();
  Loop(state, 2 * kTokens * 12 * kHeadDim, [&] {
    return Forward(
        Rope{.q = q, .k = k, .positions = ConstTensorView(positions.data(), {kTokens}), .inv_freq = inv_freq}, kCpu);
  });
}

void SwigluForwardBench(benchmark::State& state) {
  BenchBuffer<float> gate_up({kTokens, 2 * kIntermediate}), y({kTokens, kIntermediate});
  Loop(state, 3 * kTokens * kIntermediate, [&] { return Forward(SwigluForward{.gate_up = gate_up, .y = y}, kCpu); });
}

void SwigluBackwardBench(benchmark::State& state) {
  BenchBuffer<float> gate_up({kTokens, 2 * kIntermediate}), dy({kTokens, kIntermediate}),
      dgate_up({kTokens, 2 * kIntermediate});
  Loop(state, 5 * kTokens * kIntermediate,
       [&] { return Backward(SwigluBackward{.dy = dy, .gate_up = gate_up, .dgate_up = dgate_up}, kCpu); });
}

void EmbeddingBackwardBench(benchmark::State& state) {
  BenchBuffer<float> dy({kTokens, kHidden}), dweight({kVocabulary, kHidden});
  const std::vector<int32_t> ids = Counting();
  Loop(state, 3 * kTokens * kHidden, [&] {
    return Backward(EmbeddingBackward{.ids = ConstTensorView(ids.data(), {kTokens}), .dy = dy, .dweight = dweight},
                    kCpu);
  });
}

void BiasBackwardBench(benchmark::State& state) {
  BenchBuffer<float> dy({kTokens, 960}), dbias({960});
  Loop(state, kTokens * 960, [&] { return Backward(BiasBackward{.dy = dy, .dbias = dbias}, kCpu); });
}

void AdamWBench(benchmark::State& state) {
  BenchBuffer<float> master({kBlockParameters}), exp_avg({kBlockParameters}), exp_avg_sq({kBlockParameters}),
      grad({kBlockParameters});
  (void)Fill(exp_avg_sq, 0.01f, kCpu);
  Loop(state, 7 * kBlockParameters, [&] {
    return Run(AdamW{.master = master,
                     .exp_avg = exp_avg,
                     .exp_avg_sq = exp_avg_sq,
                     .grad = grad,
                     .options = {.learning_rate = 1e-6}},
               kCpu);
  });
}

void SumOfSquaresBench(benchmark::State& state) {
  BenchBuffer<float> x({kBlockParameters});
  Loop(state, kBlockParameters, [&] { return SumOfSquares(x, kCpu).status(); });
}

BENCHMARK(RmsNormForwardBench)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(RmsNormBackwardBench)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(RopeBench)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(SwigluForwardBench)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(SwigluBackwardBench)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(EmbeddingBackwardBench)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BiasBackwardBench)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(AdamWBench)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(SumOfSquaresBench)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace sluice::kernels
