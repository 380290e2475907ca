#include "engine/bench/generate_bench.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "absl/time/clock.h"
#include "common/build_info.h"
#include "common/status_macros.h"
#include "engine/bench/kernel_profile.h"
#include "engine/bench/model_shapes.h"
#include "engine/device/engine_stream.h"
#include "engine/model/parameters.h"
#include "engine/rollout/cache_size.h"
#include "engine/rollout/rollout_engine.h"

namespace sluice::engine {
namespace {

constexpr int64_t kProfiledPasses = 8;

std::vector<RolloutRequest> Requests(const GenerateBenchOptions& options, int64_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab_size - 1));
  std::vector<RolloutRequest> requests;
  for (int64_t prompt = 0; prompt < options.prompts; ++prompt) {
    std::vector<int32_t> ids;
    std::generate_n(std::back_inserter(ids), options.prompt, [&] { return token(random); });
    for (int64_t answer = 0; answer < options.answers; ++answer) {
      RolloutRequest& request = requests.emplace_back();
      request.id = prompt * options.answers + answer;
      request.prompt_ids = ids;
      request.sampling = {.temperature = options.temperature, .max_new_tokens = options.answer, .ignore_eos = true};
    }
  }
  return requests;
}

// Seconds of each pass until all is answered; `profile_from` >= 0: kProfiledPasses from that pass on are recorded.
absl::StatusOr<std::vector<double>> Answer(RolloutEngine& engine, std::vector<RolloutRequest> requests,
                                           int64_t profile_from) {
  for (RolloutRequest& request : requests) RETURN_IF_ERROR(engine.Add(std::move(request)));
  std::vector<double> seconds;
  while (!engine.idle()) {
    const auto pass = static_cast<int64_t>(seconds.size());
    if (pass == profile_from) RETURN_IF_ERROR(StartKernelProfile());
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(engine.Step().status());
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
    if (profile_from < 0 || pass != profile_from + kProfiledPasses - 1) continue;
    ASSIGN_OR_RETURN(const KernelProfile profile, StopKernelProfile());
    PrintKernelProfile(profile);
  }
  return seconds;
}

double Rounded(double value, double steps) { return std::round(value * steps) / steps; }

}  // namespace

absl::Status RunGenerateBench(const GenerateBenchOptions& options) {
  ASSIGN_OR_RETURN(const ModelConfig config, ModelShape(options.model, options.layers));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Parameters> parameters,
      Parameters::CreateRandom(config, {.dtype = options.dtype, .device = options.device, .gradients = false}, 1));
  const int64_t at_once = std::min(options.sequences, options.prompts * options.answers);
  RolloutOptions sizes = {.max_num_batched_tokens = std::max<int64_t>(8192, at_once),
                          .max_num_seqs = at_once,
                          .max_model_len = options.prompt + options.answer};
  sizes.cache_tokens = CacheTokensWithin(std::numeric_limits<int64_t>::max(), sizes, *parameters);
  ASSIGN_OR_RETURN(const std::unique_ptr<RolloutEngine> engine,
                   RolloutEngine::Create(parameters.get(), nullptr, sizes));
  RETURN_IF_ERROR(engine->AllocateCache());
  // Plans and recordings are made; what it leaves in the cache is of other prompts.
  GenerateBenchOptions few = options;
  few.answer = std::min<int64_t>(options.answer, 8);
  RETURN_IF_ERROR(Answer(*engine, Requests(few, config.vocab_size, 1), -1).status());
  const RolloutCounters before = engine->counters();
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(std::vector<double> seconds, Answer(*engine, Requests(options, config.vocab_size, 2), -1));
  const double elapsed = absl::ToDoubleSeconds(absl::Now() - start);
  std::sort(seconds.begin(), seconds.end());
  const RolloutCounters& after = engine->counters();
  const auto generated = static_cast<double>(after.generated_tokens - before.generated_tokens);
  const nlohmann::ordered_json line = {{"run", "generate"},
                                       {"model", options.model},
                                       {"layers", config.layers},
                                       {"dtype", kernels::Name(options.dtype)},
                                       {"prompts", options.prompts},
                                       {"answers", options.answers},
                                       {"prompt", options.prompt},
                                       {"answer", options.answer},
                                       {"sequences", at_once},
                                       {"temperature", options.temperature},
                                       {"tokens_per_s", std::round(generated / elapsed)},
                                       {"seconds", Rounded(elapsed, 1e4)},
                                       {"passes", seconds.size()},
                                       {"median_pass_ms", Rounded(seconds[seconds.size() / 2] * 1e3, 1e3)},
                                       {"preemptions", after.preemptions - before.preemptions},
                                       {"cache_and_activations_gib", Rounded(engine->bytes() / double{1 << 30}, 100)},
                                       {"version", BuildVersion()}};
  std::cout << line.dump() << std::endl;
  if (!options.profile || options.device.is_cpu()) return absl::OkStatus();
  const int64_t middle = static_cast<int64_t>(seconds.size()) / 2;
  return Answer(*engine, Requests(options, config.vocab_size, 3), middle).status();
}

}  // namespace sluice::engine
