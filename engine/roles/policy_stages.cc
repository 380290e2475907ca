// PolicyRole: from prompts to advantages.

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/roles/answer_balance.h"
#include "engine/roles/policy_role.h"

namespace sluice::engine {
namespace {

// The most likely answers of remax draw from no stream of the answers that are learned.
constexpr uint64_t kBaselineStreams = uint64_t{1} << 61;

// What algorithm.filter_groups.metric says of a scored answer: a number of the reward by its name or, where one reward
// alone gives it, without that reward's name before it. InvalidArgument: there is none.
absl::StatusOr<double> FilterValue(const RewardResult& result, const std::string& metric) {
  if (metric == "score") return *result.score;
  const auto found = result.metrics.find(metric);
  if (found != result.metrics.end()) return found->second;
  std::vector<double> matches;
  for (const auto& [name, value] : result.metrics) {
    if (absl::EndsWith(name, "/" + metric)) matches.push_back(value);
  }
  if (matches.size() == 1) return matches[0];
  std::string known = "score";
  for (const auto& [name, value] : result.metrics) absl::StrAppend(&known, ", ", name);
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm.filter_groups.metric: the reward gives no number \"", metric, "\"; it gives ", known));
}

}  // namespace

absl::StatusOr<std::vector<Answer>> PolicyRole::GenerateAnswers(const GenerateOrder& order) {
  std::vector<Answer> answers;
  std::vector<RolloutRequest> requests;
  const auto world = static_cast<size_t>(communicator_->world_size());
  for (size_t place = static_cast<size_t>(communicator_->rank()); place < order.rows.size(); place += world) {
    for (int64_t i = 0; i < order.n; ++i) {
      Answer& answer = answers.emplace_back();
      answer.place = static_cast<int64_t>(place);
      answer.row = order.rows[place];
      answer.sample = static_cast<uint64_t>(answer.place * order.n + i);
      answer.prompt_ids = &order.prompts->prompt(answer.row).ids;
      requests.push_back({.id = static_cast<int64_t>(order.first_sample + answer.sample),
                          .prompt_ids = *answer.prompt_ids,
                          .sampling = order.sampling,
                          .generated = {}});
    }
  }
  // Room for keys and values is only there while answers are generated.
  RETURN_IF_ERROR(rollout_->AllocateCache());
  rollout_->set_weight_version(steps_done_);
  auto samples = rollout_->Generate(std::move(requests));
  rollout_->FreeCache();
  RETURN_IF_ERROR(samples.status());
  if (weights_ != nullptr) RETURN_IF_ERROR(weights_->device_status());
  for (size_t i = 0; i < answers.size(); ++i) {
    RolloutSample& sample = (*samples)[i];
    answers[i].response_ids = std::move(sample.token_ids);
    answers[i].rollout_log_prob = std::move(sample.log_probs);
    answers[i].text = std::move(sample.text);
    answers[i].truncated = sample.finish_reason == FinishReason::kLength;
    answers[i].weight_version = sample.weight_version;
  }
  return answers;
}

absl::Status PolicyRole::ScoreAnswers(const PromptDataset& prompts, absl::Span<Answer> answers,
                                      const std::string& prefix, MetricSums* metrics) {
  std::vector<RewardRequest> requests;
  for (const Answer& answer : answers) {
    const Prompt& prompt = prompts.prompt(answer.row);
    requests.push_back({prompt.data_source, answer.text, prompt.ground_truth, prompt.extra_info_json,
                        answer.response_tokens(), answer.truncated, *answer.prompt_ids, answer.response_ids});
  }
  auto results = reward_->Score(requests);
  RETURN_IF_ERROR(Annotate(results.status(), "reward"));
  const RewardResult* first_error = nullptr;
  for (size_t i = 0; i < answers.size(); ++i) {
    const RewardResult& result = (*results)[i];
    answers[i].score = result.score;
    answers[i].extracted = result.extracted;
    answers[i].components = result.components;
    if (!policy_.filter_metric.empty() && result.score.has_value()) {
      ASSIGN_OR_RETURN(answers[i].filter_value, FilterValue(result, policy_.filter_metric));
    }
    if (!judged_) continue;
    for (const auto& [name, value] : result.metrics) metrics->AddMean(absl::StrCat(prefix, "reward/", name), value);
    if (result.error == RewardError::kNone) continue;
    metrics->AddSum(absl::StrCat(prefix, "reward/errors/", std::string(RewardErrorName(result.error))), 1);
    if (first_error == nullptr) first_error = &result;
  }
  if (first_error != nullptr) {
    const RewardErrorCounts errors = CountErrors(*results);
    const int64_t failed = static_cast<int64_t>(answers.size()) - errors[static_cast<size_t>(RewardError::kNone)];
    LoggerFor("engine").Warning(
        absl::StrCat(failed, " of ", answers.size(), " answers have no reward and are left out; the first: ",
                     std::string(RewardErrorName(first_error->error)), ": ", first_error->message));
  }
  return absl::OkStatus();
}

absl::StatusOr<PolicyRole::Generated> PolicyRole::GenerateBatch(Step* step) {
  const int64_t batch = step->step - 1 + further_batches_ + step->batches++;
  Generated generated;
  ASSIGN_OR_RETURN(generated.prompts, train_->PromptsForStep(batch));
  const int64_t n = spec_.rollout().n();
  const auto first_sample = static_cast<uint64_t>(batch * spec_.data().train_batch_size() * n);
  const absl::Status local = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(generated.answers, GenerateAnswers({.prompts = train_.get(),
                                                         .rows = generated.prompts.rows,
                                                         .sampling = policy_.sampling,
                                                         .n = n,
                                                         .first_sample = first_sample}));
    if (!InfoOf(policy_.advantage.estimator).needs_baseline) return absl::OkStatus();
    SamplingParams greedy = policy_.sampling;
    greedy.temperature = 0;
    ASSIGN_OR_RETURN(generated.baselines, GenerateAnswers({.prompts = train_.get(),
                                                           .rows = generated.prompts.rows,
                                                           .sampling = greedy,
                                                           .n = 1,
                                                           .first_sample = kBaselineStreams}));
    return absl::OkStatus();
  }();
  RETURN_IF_ERROR(communicator_->Agree(local));
  // A forward of every token. What answers to one prompt share, and what is computed again after a preemption, is not
  // told apart: these are the FLOPs of the model, not of the machine.
  const ModelConfig& config = parameters_->config();
  step->flops += (AnswerFlops(config, generated.answers) + AnswerFlops(config, generated.baselines)) / 3;
  for (const Answer& answer : generated.answers) {
    step->metrics.AddSpread("response_length", static_cast<double>(answer.response_tokens()));
    step->metrics.AddMean("response_length/clip_ratio", answer.truncated ? 1 : 0);
    step->metrics.AddSpread("prompt_length", static_cast<double>(answer.prompt_ids->size()));
  }
  return generated;
}

absl::Status PolicyRole::ScoreBatch(absl::Span<Answer> answers, absl::Span<Answer> baselines, Step* step,
                                    Communicator& ranks) {
  MetricSums& metrics = step->reward_metrics;
  const absl::Status local = [&]() -> absl::Status {
    RETURN_IF_ERROR(ScoreAnswers(*train_, answers, "", &metrics));
    return ScoreAnswers(*train_, baselines, "baseline/", &metrics);
  }();
  RETURN_IF_ERROR(ranks.Agree(local));
  for (RewardModel* model : reward_models_) step->flops += model->TakeFlops();
  for (const Answer& answer : answers) {
    if (judged_ && answer.score.has_value()) metrics.AddSpread("critic/score", *answer.score);
  }
  return absl::OkStatus();
}

absl::Status PolicyRole::GenerateStage(Step* step) {
  ASSIGN_OR_RETURN(Generated generated, GenerateBatch(step));
  step->prompts = std::move(generated.prompts);
  step->answers = std::move(generated.answers);
  step->baselines = std::move(generated.baselines);
  // Which answers are trained on is not known before they are filtered; between pools they go by their place.
  return policy_.filter_metric.empty() && world_ == communicator_ ? BalanceStep(step) : absl::OkStatus();
}

absl::Status PolicyRole::RewardStage(Step* step, Communicator& ranks) {
  return ScoreBatch(absl::MakeSpan(step->answers), absl::MakeSpan(step->baselines), step, ranks);
}

absl::Status PolicyRole::BalanceStep(Step* step) {
  const AdvantageEstimatorInfo& estimator = InfoOf(policy_.advantage.estimator);
  const std::vector<int64_t> mini_batch_of_place =
      MiniBatchOfPlaces(*step, /*pass=*/0, spec_.actor().ppo_mini_batch_size());
  return BalanceAnswers({.move = spec_.trainer().balance_batch() && world_ == communicator_,
                         .keep_groups = estimator.needs_groups || estimator.needs_baseline,
                         .mini_batch_of_place = mini_batch_of_place,
                         .model = &parameters_->config()},
                        *train_, &step->answers, &step->baselines, *communicator_, &step->metrics);
}

absl::Status PolicyRole::FillLogProbs(CausalLm& model, absl::Span<const PackedAnswers> micro_batches,
                                      std::vector<float> Answer::*array, absl::Span<Answer> answers,
                                      MetricSums* entropy) const {
  for (const PackedAnswers& packed : micro_batches) {
    ASSIGN_OR_RETURN(const TokenScores scores,
                     model.Score(packed.batch, {.temperature = policy_.temperature, .entropy = entropy != nullptr}));
    FromSlots(scores.log_prob, packed, array, answers);
    if (entropy == nullptr) continue;
    for (const Sequence& sequence : packed.sequences) {
      for (int64_t slot = sequence.begin; slot < sequence.end; ++slot) {
        entropy->AddMean("actor/entropy", scores.entropy[static_cast<size_t>(slot)]);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PolicyRole::LogProbStage(Step* step) {
  // How even the ranks of the pool are, where nothing was dealt anew.
  if (world_ != communicator_) RETURN_IF_ERROR(BalanceStep(step));
  const int64_t token_slots = spec_.data().max_token_len_per_gpu();
  int64_t micro_batches = 0;
  const absl::Status filled = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<PackedAnswers> packed, PackAllAnswers(step->answers, token_slots));
    micro_batches = static_cast<int64_t>(packed.size());
    return FillLogProbs(*model_, packed, &Answer::old_log_prob, absl::MakeSpan(step->answers),
                        /*entropy=*/&step->metrics);
  }();
  RETURN_IF_ERROR(communicator_->Agree(filled));
  step->flops += AnswerFlops(parameters_->config(), step->answers) / 3;
  step->metrics.AddMax("micro_batches", static_cast<double>(micro_batches));
  step->metrics.AddSum("token_slots", static_cast<double>(micro_batches * token_slots));
  // How far the rollout engine's numbers are from the trainer's, and the weights that correct for it.
  const ResponseTokens tokens(step->answers);
  const std::vector<float> old_log_prob = tokens.Gather(step->answers, &Answer::old_log_prob);
  const std::vector<float> rollout_log_prob = tokens.Gather(step->answers, &Answer::rollout_log_prob);
  ASSIGN_OR_RETURN(
      RolloutCorrection correction,
      CorrectRollout(policy_.correction,
                     {.batch = tokens.batch(), .old_log_prob = old_log_prob, .rollout_log_prob = rollout_log_prob}));
  const RolloutCorrectionMetrics& metrics = correction.metrics;
  step->metrics.AddMean("training/rollout_probs_diff_mean", metrics.probs_diff);
  step->metrics.AddMax("training/rollout_probs_diff_max", metrics.probs_diff_max);
  step->metrics.AddMean("training/rollout_logprob_diff_mean", metrics.log_prob_difference);
  step->metrics.AddMean("rollout_corr/kl", metrics.kl);
  if (!policy_.correction.rejection.empty()) {
    step->metrics.AddMean("rollout_corr/rejected_tokens", metrics.rejected_tokens);
    step->metrics.AddMean("rollout_corr/rejected_answers", metrics.rejected_sequences);
    tokens.Scatter(correction.mask, &Answer::mask, absl::MakeSpan(step->answers));
  }
  if (correction.weight.empty()) return absl::OkStatus();
  if (policy_.correction.batch_normalize) {
    std::vector<double> sums = {metrics.weight_normaliser.sum, metrics.weight_normaliser.weight};
    RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(sums)));
    NormaliseWeights({.sum = sums[0], .weight = sums[1]}, std::span<float>(correction.weight));
  }
  step->metrics.AddMean("rollout_corr/rollout_is_mean", metrics.weight);
  step->metrics.AddMean("rollout_corr/rollout_is_outside", metrics.weight_outside);
  tokens.Scatter(correction.weight, &Answer::importance_weight, absl::MakeSpan(step->answers));
  return absl::OkStatus();
}

absl::Status PolicyRole::RefLogProbStage(Step* step) {
  if (reference_ == nullptr) return NotOfThisRecipe("ref_logprob");
  const absl::Status filled = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<PackedAnswers> packed,
                     PackAllAnswers(step->answers, spec_.data().max_token_len_per_gpu()));
    return FillLogProbs(*reference_, packed, &Answer::ref_log_prob, absl::MakeSpan(step->answers), /*entropy=*/nullptr);
  }();
  step->flops += AnswerFlops(reference_parameters_->config(), step->answers) / 3;
  return communicator_->Agree(filled);
}

absl::StatusOr<double> PolicyRole::MeasureDivergence(absl::Span<Answer> answers) {
  const absl::Status local = [&]() -> absl::Status {
    if (!pool_.rollout) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<PackedAnswers> packed,
                     PackAllAnswers(answers, spec_.data().max_token_len_per_gpu()));
    RETURN_IF_ERROR(FillLogProbs(*model_, packed, &Answer::old_log_prob, answers, /*entropy=*/nullptr));
    return FillLogProbs(*reference_, packed, &Answer::ref_log_prob, answers, /*entropy=*/nullptr);
  }();
  RETURN_IF_ERROR(world_->Agree(local));
  std::vector<double> sums(2, 0.0);
  for (const Answer& answer : answers) {
    for (size_t t = 0; t < answer.response_ids.size(); ++t) {
      sums[0] += static_cast<double>(answer.old_log_prob[t]) - static_cast<double>(answer.ref_log_prob[t]);
      sums[1] += 1;
    }
  }
  RETURN_IF_ERROR(world_->AllReduceSum(absl::MakeSpan(sums)));
  return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

absl::Status PolicyRole::TakeRolloutLogProbs(Step* step) {
  for (Answer& answer : step->answers) answer.old_log_prob = answer.rollout_log_prob;
  const int64_t token_slots = spec_.data().max_token_len_per_gpu();
  const auto packed = PackAllAnswers(step->answers, token_slots);
  RETURN_IF_ERROR(communicator_->Agree(packed.status()));
  const auto micro_batches = static_cast<double>(packed->size());
  step->metrics.AddMax("micro_batches", micro_batches);
  step->metrics.AddSum("token_slots", micro_batches * static_cast<double>(token_slots));
  return absl::OkStatus();
}

absl::Status PolicyRole::AdvantageStage(Step* step) {
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
  for (size_t i = 0; i < step->answers.size(); ++i) {
    if (!step->answers[i].learned) continue;
    double reward = *rewards[i].score;
    for (int64_t t = tokens.sequences[i].begin; t < tokens.sequences[i].end; ++t) {
      if (!inputs.batch.Counts(t)) continue;
      const auto place = static_cast<size_t>(t);
      step->metrics.AddSpread("critic/advantages", advantages.advantage[place]);
      step->metrics.AddSpread("critic/returns", advantages.returns[place]);
      if (!token_rewards.empty()) reward += token_rewards[place];
    }
    step->metrics.AddSpread("critic/rewards", reward);
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
