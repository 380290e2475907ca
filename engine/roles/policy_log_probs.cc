// PolicyRole: log-probabilities of answers under the policy and the reference.

#include "common/status_macros.h"
#include "engine/roles/policy_role.h"

namespace sluice::engine {

absl::Status PolicyRole::FillLogProbs(CausalLm& model, absl::Span<const PackedAnswers> micro_batches,
                                      std::vector<float> Answer::*array, absl::Span<Answer> answers,
                                      WeightedSum* entropy) const {
  for (const PackedAnswers& packed : micro_batches) {
    ASSIGN_OR_RETURN(const TokenScores scores,
                     model.Score(packed.batch, {.temperature = policy_.temperature, .entropy = entropy != nullptr}));
    FromSlots(scores.log_prob, packed, array, answers);
    if (entropy == nullptr) continue;
    for (const Sequence& sequence : packed.sequences) {
      for (int64_t slot = sequence.begin; slot < sequence.end; ++slot) {
        entropy->Add(scores.entropy[static_cast<size_t>(slot)]);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PolicyRole::LogProbStage(Step* step) {
  const int64_t token_slots = spec_.data().max_token_len_per_gpu();
  int64_t micro_batches = 0;
  WeightedSum entropy;
  const absl::Status filled = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<PackedAnswers> packed, PackAllAnswers(step->answers, token_slots));
    micro_batches = static_cast<int64_t>(packed.size());
    return FillLogProbs(*model_, packed, &Answer::old_log_prob, absl::MakeSpan(step->answers), &entropy);
  }();
  RETURN_IF_ERROR(communicator_->Agree(filled));
  step->metrics.AddMean("actor/entropy", entropy);
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

}  // namespace sluice::engine
