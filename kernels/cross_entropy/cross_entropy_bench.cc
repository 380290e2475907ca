// The head of SmolLM2-135M (H 576, V 49152) over 1,024 tokens of which some are scored. FLOP/s counts the products of
// the scored tokens: one forward, four in forward then backward, three in one pass.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/testing/bench_buffers.h"

namespace sluice::kernels {
namespace {

using testing::BenchBuffer;

constexpr int64_t kTokens = 1024, kHidden = 576, kVocabulary = 49152;

void OnePass(benchmark::State& state) {
  const int64_t scored = state.range(0);
  BenchBuffer<float> hidden({kTokens, kHidden}), weight({kVocabulary, kHidden}), d_loss({kTokens}), log_prob({kTokens}),
      dhidden({kTokens, kHidden}), dweight({kVocabulary, kHidden});
  std::vector<int32_t> labels(kTokens), slots;
  for (int64_t i = 0; i < scored; ++i) {
    const int64_t slot = i * kTokens / scored;
    slots.push_back(static_cast<int32_t>(slot));
    labels[static_cast<size_t>(slot)] = static_cast<int32_t>(i);
  }
  const CrossEntropyForwardBackward args = {.in = {.hidden = hidden,
                                                   .weight = weight,
                                                   .labels = ConstTensorView(labels.data(), {kTokens}),
                                                   .scored = ConstTensorView(slots.data(), {scored})},
                                            .d_loss = d_loss,
                                            .log_prob = log_prob,
                                            .dhidden = dhidden,
                                            .dweight = dweight};
  for (auto _ : state) {
    const absl::Status status = ForwardBackward(args, DefaultStream(Device::Cpu()));
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  state.counters["FLOP/s"] = benchmark::Counter(3.0 * 2.0 * static_cast<double>(scored * kHidden * kVocabulary),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(OnePass)->ArgName("scored")->Arg(1024)->Arg(256)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace sluice::kernels
