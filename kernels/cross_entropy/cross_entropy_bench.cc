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
  std::vector<int32_t> labels(kTokens, kIgnoredLabel);
  for (int64_t t = 0; t < scored; ++t) labels[static_cast<size_t>(t * kTokens / scored)] = static_cast<int32_t>(t);
  const CrossEntropyForwardBackward args = {.d_loss = d_loss,
                                            .hidden = hidden,
                                            .weight = weight,
                                            .labels = ConstTensorView(labels.data(), {kTokens}),
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
