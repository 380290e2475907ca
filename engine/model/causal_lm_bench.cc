// Speed of training steps on the shape of SmolLM2-135M with random weights.
//   build/bench/causal_lm_bench --benchmark_filter=ForwardBackward
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>

#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"
#include "engine/model/testing/run_batch.h"

namespace sluice::engine {
namespace {

constexpr char kSmolLm2[] = R"({
  "architectures": ["LlamaForCausalLM"], "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
  "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "rms_norm_eps": 1e-05,
  "rope_theta": 100000, "tie_word_embeddings": true, "max_position_embeddings": 8192})";

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << "\n";
    std::abort();
  }
  return *std::move(value);
}

// `tokens` slots filled with sequences of 256 tokens, every token scored.
MicroBatch FullBatch(int64_t tokens) {
  std::vector<std::vector<int32_t>> ids, labels;
  for (int64_t begin = 0; begin < tokens; begin += 256) {
    std::vector<int32_t>& sequence = ids.emplace_back();
    for (int64_t i = begin; i < std::min(begin + 256, tokens); ++i) {
      sequence.push_back(static_cast<int32_t>(i * 7919 % 49152));
    }
    labels.push_back(sequence);
  }
  return testing::Pack(ids, labels, tokens);
}

void BM_ForwardBackward(benchmark::State& state) {
  const ModelConfig config = ValueOrDie(ParseModelConfig(kSmolLm2));
  const kernels::DType dtype = state.range(1) != 0 ? kernels::DType::kBFloat16 : kernels::DType::kFloat32;
  const auto parameters = ValueOrDie(Parameters::CreateRandom(config, {.dtype = dtype}, 1));
  const auto model = ValueOrDie(CausalLm::Create(parameters.get(), {.token_slots = state.range(0)}));
  const MicroBatch batch = FullBatch(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ValueOrDie(testing::ForwardBackwardLoss(*model, batch, 1e-3)));
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["activation_MiB"] = static_cast<double>(model->bytes()) / (1 << 20);
}
BENCHMARK(BM_ForwardBackward)
    ->ArgNames({"tokens", "bf16"})
    ->Args({1024, 0})
    ->Args({1024, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace sluice::engine
