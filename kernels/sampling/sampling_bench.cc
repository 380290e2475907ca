// Sampling of one row of a vocabulary of 49,152 (SmolLM2) and 151,936 (Qwen2.5), with and without filters.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/sampling/sampling.h"

namespace sluice::kernels {
namespace {

void Sample(benchmark::State& state, SamplingRow row) {
  const int64_t vocabulary = state.range(0);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 2.5f);
  std::vector<float> logits(static_cast<size_t>(vocabulary));
  for (float& logit : logits) logit = normal(random);
  SampledToken out;
  for (auto _ : state) {
    ++row.index;
    const absl::Status status =
        Run(Sampling{.logits = ConstTensorView(logits.data(), {1, vocabulary}), .rows = {&row, 1}, .out = {&out, 1}});
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
    benchmark::DoNotOptimize(out);
  }
}

void Vocabularies(benchmark::internal::Benchmark* bench) {
  bench->Arg(49152)->Arg(151936)->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(Sample, greedy, SamplingRow{.temperature = 0})->Apply(Vocabularies);
BENCHMARK_CAPTURE(Sample, plain, SamplingRow{})->Apply(Vocabularies);
BENCHMARK_CAPTURE(Sample, top_k_50, SamplingRow{.top_k = 50})->Apply(Vocabularies);
BENCHMARK_CAPTURE(Sample, top_p_95, SamplingRow{.top_p = 0.95f})->Apply(Vocabularies);
BENCHMARK_CAPTURE(Sample, min_p_05, SamplingRow{.min_p = 0.05f})->Apply(Vocabularies);

}  // namespace
}  // namespace sluice::kernels
