// PolicyRole: from scores to advantages.

#include <cmath>

#include "common/status_macros.h"
#include "engine/roles/policy_role.h"

namespace sluice::engine {

absl::Status PolicyRole::AdvantageStage(Step* step) {
  // A filter has done so.
  if (policy_.filter_metric.empty()) {
    RETURN_IF_ERROR(
        AddUpStages(step->scored, absl::MakeSpan(step->answers), absl::MakeSpan(step->baselines), &step->metrics));
  }
  if (!has_logprob_) RETURN_IF_ERROR(TakeRolloutLogProbs(step));
  const ResponseTokens tokens(step->answers);
  std::vector<SampleReward> rewards;
  std::map<int64_t, std::optional<double>> baselines;
  for (const Answer& answer : step->baselines) baselines[answer.place] = answer.score;
  for (const Answer& answer : step->answers) {
    SampleReward& reward = rewards.emplace_back();
    reward.group = static_cast<uint64_t>(answer.place);
    reward.score = answer.score;
    if (const auto found = baselines.find(answer.place); found != baselines.end()) reward.baseline = found->second;
  }
  std::vector<float> token_rewards;
  WeightedSum kl;
  if (spec_.algorithm().use_kl_in_reward()) {
    token_rewards.resize(static_cast<size_t>(tokens.tokens), 0.0f);
    const std::vector<float> log_prob = tokens.Gather(step->answers, &Answer::old_log_prob);
    const std::vector<float> ref_log_prob = tokens.Gather(step->answers, &Answer::ref_log_prob);
    ASSIGN_OR_RETURN(kl, ApplyKlPenalty(policy_.kl_penalty, kl_controller_.kl_coef,
                                        {.batch = tokens.batch(), .log_prob = log_prob, .ref_log_prob = ref_log_prob},
                                        std::span<float>(token_rewards)));
  }
  std::vector<float> values;
  if (critic_ != nullptr) values = tokens.Gather(step->answers, &Answer::value);
  std::vector<double> components;
  const size_t width = policy_.advantage.component_weight.size();
  for (const Answer& answer : step->answers) {
    // Without a score there is none of them.
    const bool whole = answer.components.size() == width;
    for (size_t k = 0; k < width; ++k) components.push_back(whole ? answer.components[k] : std::nan(""));
  }
  const AdvantageInputs inputs = {.batch = tokens.batch(),
                                  .samples = rewards,
                                  .token_rewards = token_rewards,
                                  .values = values,
                                  .components = components};
  ASSIGN_OR_RETURN(Advantages advantages, ComputeAdvantages(policy_.advantage, inputs));

  // What the other half, and the controller of the penalty, want to know of all ranks.
  AdvantageSums& sums = advantages.sums;
  const auto samples = static_cast<double>(step->answers.size());
  std::vector<double> totals = {sums.tokens, sums.sum,  sums.squares, sums.samples, sums.samples_in_flat_groups,
                                kl.sum,      kl.weight, samples};
  RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(totals)));
  FinishAdvantages(policy_.advantage, inputs, {totals[0], totals[1], totals[2], totals[3], totals[4]}, advantages);
  if (spec_.algorithm().use_kl_in_reward()) {
    const double current = totals[6] > 0 ? totals[5] / totals[6] : 0;
    step->metrics.AddMean("actor/reward_kl_penalty", current);
    step->metrics.AddMean("actor/reward_kl_penalty_coeff", kl_controller_.kl_coef);
    kl_controller_ =
        UpdateKlController(policy_.kl_controller, kl_controller_, current, static_cast<int64_t>(totals[7]));
  }

  std::vector<float> narrow(advantages.advantage.begin(), advantages.advantage.end());
  tokens.Scatter(narrow, &Answer::advantage, absl::MakeSpan(step->answers));
  if (critic_ != nullptr) {
    narrow.assign(advantages.returns.begin(), advantages.returns.end());
    tokens.Scatter(narrow, &Answer::returns, absl::MakeSpan(step->answers));
  }
  for (size_t i = 0; i < step->answers.size(); ++i) step->answers[i].learned = advantages.scored[i] != 0;
  // Of other estimators a group may lie on several ranks.
  if (InfoOf(policy_.advantage.estimator).needs_groups) {
    step->metrics.AddSum("training/flat_groups", static_cast<double>(advantages.counts.flat_groups));
  }
  Spread of_advantages, of_returns, of_rewards;
  for (size_t i = 0; i < step->answers.size(); ++i) {
    if (!step->answers[i].learned) continue;
    double reward = *rewards[i].score;
    for (int64_t t = tokens.sequences[i].begin; t < tokens.sequences[i].end; ++t) {
      if (!inputs.batch.Counts(t)) continue;
      const auto place = static_cast<size_t>(t);
      of_advantages.Add(advantages.advantage[place]);
      of_returns.Add(advantages.returns[place]);
      if (!token_rewards.empty()) reward += token_rewards[place];
    }
    of_rewards.Add(reward);
  }
  step->metrics.AddSpread("critic/advantages", of_advantages);
  step->metrics.AddSpread("critic/returns", of_returns);
  step->metrics.AddSpread("critic/rewards", of_rewards);
  return absl::OkStatus();
}

}  // namespace sluice::engine
