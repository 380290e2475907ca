// Generated tokens a second on the shape of SmolLM2-135M with random weights: one prompt, and 32 at once. Prompts of 64
// tokens, answers of 32.
//   build/bench/rollout_bench
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <iostream>

#include "engine/rollout/rollout_engine.h"

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

// Prompts that share no beginning, so that all of them are computed.
void Generate(benchmark::State& state, kernels::DType dtype) {
  constexpr int64_t kPrompt = 64, kAnswer = 32;
  const ModelConfig config = ValueOrDie(ParseModelConfig(kSmolLm2));
  const auto parameters = ValueOrDie(Parameters::CreateRandom(config, {.dtype = dtype, .gradients = false}, 1));
  const auto engine = ValueOrDie(RolloutEngine::Create(
      parameters.get(), nullptr,
      {.cache_tokens = 32 * 128, .max_num_batched_tokens = 512, .max_num_seqs = 32, .max_model_len = 128}));
  if (!engine->AllocateCache().ok()) std::abort();
  for (auto _ : state) {
    std::vector<RolloutRequest> requests;
    for (int64_t i = 0; i < state.range(0); ++i) {
      RolloutRequest& request = requests.emplace_back();
      request.id = i;
      for (int64_t t = 0; t < kPrompt; ++t) {
        request.prompt_ids.push_back(static_cast<int32_t>((i * 977 + t * 7919) % 49152));
      }
      request.sampling.max_new_tokens = kAnswer;
    }
    engine->set_weight_version(engine->counters().steps);  // forgets the prompts of the round before
    benchmark::DoNotOptimize(ValueOrDie(engine->Generate(std::move(requests))));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0) * kAnswer);
}

BENCHMARK_CAPTURE(Generate, fp32, kernels::DType::kFloat32)
    ->ArgName("prompts")
    ->Arg(1)
    ->Arg(32)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(Generate, bf16, kernels::DType::kBFloat16)
    ->ArgName("prompts")
    ->Arg(1)
    ->Arg(32)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace sluice::engine
