#include "engine/reward/reward_factory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/reward/python_reward.h"
#include "engine/reward/remote_reward.h"
#include "engine/reward/rule_reward.h"
#include "engine/reward/source_reward.h"
#include "engine/reward/weighted_reward.h"

namespace sluice::engine {
namespace {

using Maker = absl::StatusOr<std::unique_ptr<Reward>> (*)(const RewardOptionValues& options);

absl::StatusOr<std::unique_ptr<Reward>> MakePython(const RewardOptionValues& options) {
  return StartPythonReward({.file = options.Text("path"),
                            .function = options.Text("function"),
                            .kwargs_json = options.Text("kwargs"),
                            .python = options.Text("python"),
                            .workers = static_cast<int>(options.Int("workers")),
                            .timeout = options.Duration("timeout"),
                            .start_timeout = options.Duration("start_timeout"),
                            .memory_bytes = options.Int("memory"),
                            .file_bytes = options.Int("file_size")});
}

absl::StatusOr<std::unique_ptr<Reward>> MakeRemote(const RewardOptionValues& options) {
  return MakeRemoteReward({.address = options.Text("address"),
                           .timeout = options.Duration("timeout"),
                           .max_attempts = static_cast<int>(options.Int("max_attempts")),
                           .initial_backoff = options.Duration("initial_backoff"),
                           .max_backoff = options.Duration("max_backoff"),
                           .batch_size = options.Int("batch_size"),
                           .concurrency = static_cast<int>(options.Int("concurrency"))});
}

absl::StatusOr<std::unique_ptr<Reward>> MakeSource(const RewardOptionValues& options) {
  return MakeSourceReward(options.Text("sources"));
}

struct Entry {
  std::string_view kind;
  Maker make;
};
// The kinds that are no rules.
constexpr Entry kMakers[] = {{"auto", MakeSource}, {"python", MakePython}, {"remote", MakeRemote}};

}  // namespace

absl::StatusOr<std::unique_ptr<Reward>> NoRewardModel(const RewardSpec&) {
  return absl::InvalidArgumentError("a reward model runs in an engine with a policy, and here is none");
}

absl::StatusOr<std::unique_ptr<Reward>> MakeSingleReward(const RewardSpec& spec, RewardModelMaker make_model) {
  ASSIGN_OR_RETURN(const RewardOptionValues options, RewardOptionValues::Parse(spec));
  if (spec.kind == "model") return make_model(spec);
  for (const Entry& entry : kMakers) {
    if (entry.kind == spec.kind) return entry.make(options);
  }
  ASSIGN_OR_RETURN(RewardRule rule, MakeRule(spec.kind, options));
  return MakeRuleReward(std::move(rule));
}

absl::StatusOr<std::unique_ptr<Reward>> MakeReward(absl::Span<const RewardSpec> specs, RewardModelMaker make_model) {
  if (specs.empty()) return absl::InvalidArgumentError("no reward is named; a job that learns from rewards needs one");
  RETURN_IF_ERROR(CheckRewardSpecs(specs));
  std::vector<WeightedPart> parts;
  for (size_t i = 0; i < specs.size(); ++i) {
    absl::StatusOr<std::unique_ptr<Reward>> reward = MakeSingleReward(specs[i], make_model);
    if (!reward.ok()) {
      return Annotate(reward.status(), absl::StrCat("rewards[", i, "] (", specs[i].label(), ")"));
    }
    parts.push_back({specs[i].label(), specs[i].weight, *std::move(reward)});
  }
  return std::make_unique<WeightedReward>(std::move(parts));
}

}  // namespace sluice::engine
