// PreferenceRole: from rows to losses and gradients.

#include <utility>

#include "common/failpoint.h"
#include "common/status_macros.h"
#include "engine/data/truncation.h"
#include "engine/roles/pair_rewards.h"
#include "engine/roles/preference_role.h"

namespace sluice::engine {
namespace {

double SumOfCounted(const TokenBatch& batch, const Sequence& sequence, absl::Span<const float> values) {
  double sum = 0;
  for (int64_t t = sequence.begin; t < sequence.end; ++t) {
    if (batch.Counts(t)) sum += values[static_cast<size_t>(t)];
  }
  return sum;
}

}  // namespace

absl::Status PreferenceRole::ForEachMicroBatch(absl::Span<const SequenceGroup> groups,
                                               absl::FunctionRef<absl::Status(const PackedGroups&)> visit) const {
  const int64_t token_slots = spec_.data().max_token_len_per_gpu();
  ASSIGN_OR_RETURN(const BatchPlan plan, PlanGroups(groups, communicator_->world_size(), token_slots));
  for (const std::vector<int32_t>& micro_batch : plan.ranks[static_cast<size_t>(options_.rank)]) {
    if (micro_batch.empty()) continue;  // another rank has more
    RETURN_IF_ERROR(visit(PackGroups(groups, micro_batch, token_slots)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> PreferenceRole::ReferenceLogProbs(const PackedGroups& packed) {
  if (reference_.model == nullptr) return std::vector<float>();
  ASSIGN_OR_RETURN(TokenScores scores, reference_.model->Score(packed.batch, {}));
  return std::move(scores.log_prob);
}

absl::StatusOr<PreferenceRole::Numbers> PreferenceRole::Run(const PreferenceData& data, absl::Span<const int64_t> rows,
                                                            Pass pass, PhaseTimer* phases) {
  Batch batch = {.data = &data, .rows = rows, .groups = data.GroupsOf(rows), .totals = {}, .reference_point = {}};
  batch.totals.pairs = static_cast<int64_t>(rows.size());
  for (const SequenceGroup& group : batch.groups) batch.totals.chosen_tokens += ScorableTokens(*group.sequences[0]);
  MetricSums sums;
  if (!tuning_.pairs) {
    ASSIGN_OR_RETURN(batch.reference_point, EstimateReferencePoint(batch));
    if (phases != nullptr) phases->End("kl_estimate");
  }
  RETURN_IF_ERROR(communicator_->Agree(RunMicroBatches(batch, pass, phases, &sums)));
  ASSIGN_OR_RETURN(Numbers numbers, sums.Reduce(*communicator_));
  if (!tuning_.pairs) {
    numbers["kl"] = batch.reference_point.desirable;
    const auto chosen = numbers.find("rewards/chosen"), rejected = numbers.find("rewards/rejected");
    if (chosen != numbers.end() && rejected != numbers.end()) {
      numbers["rewards/margins"] = chosen->second - rejected->second;
    }
  }
  return numbers;
}

absl::StatusOr<KtoReferencePoint> PreferenceRole::EstimateReferencePoint(const Batch& batch) {
  const std::vector<EncodedRow> mismatched = MismatchedRows(*batch.data, batch.rows, spec_.data().max_length());
  KtoLogRatios ratios;
  const absl::Status local = [&]() -> absl::Status {
    if (mismatched.empty()) return absl::OkStatus();
    std::vector<SequenceGroup> groups;
    for (size_t i = 0; i < mismatched.size(); ++i) groups.push_back({{&mismatched[i]}, batch.groups[i].sample_id});
    return ForEachMicroBatch(groups, [&](const PackedGroups& packed) -> absl::Status {
      ASSIGN_OR_RETURN(const std::vector<float> ref_log_prob, ReferenceLogProbs(packed));
      ASSIGN_OR_RETURN(const TokenScores scores, model_->Score(packed.batch, {}));
      // What they are labelled does not matter for an estimate over all.
      const std::vector<uint8_t> desirable(packed.sequences.size(), 1);
      ASSIGN_OR_RETURN(const KtoLogRatios some, LogRatios({.batch = packed.tokens(),
                                                           .desirable = desirable,
                                                           .log_prob = scores.log_prob,
                                                           .ref_log_prob = ref_log_prob}));
      ratios += some;
      return absl::OkStatus();
    });
  }();
  RETURN_IF_ERROR(communicator_->Agree(local));
  std::vector<double> sums = {ratios.desirable.sum, ratios.desirable.weight};
  RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(sums)));
  ratios.desirable = {.sum = sums[0], .weight = sums[1]};
  return UnpairedReferencePoint(ratios);
}

absl::Status PreferenceRole::RunMicroBatch(const Batch& batch, const PackedGroups& packed, Pass pass, GradientMode mode,
                                           PhaseTimer* phases, MetricSums* sums) {
  if (tuning_.reward_model.has_value()) {
    const auto loss = [&](const std::vector<float>& values) { return LossOfRewards(batch, packed, values, sums); };
    if (pass == Pass::kTrain) return model_->ForwardBackward(packed.batch, loss, mode);
    ASSIGN_OR_RETURN(const std::vector<float> values, model_->Values(packed.batch));
    return loss(values).status();
  }
  ASSIGN_OR_RETURN(const std::vector<float> ref_log_prob, ReferenceLogProbs(packed));
  if (reference_.model != nullptr && phases != nullptr) phases->End("reference");
  if (pass == Pass::kForward) {
    ASSIGN_OR_RETURN(const TokenScores scores, model_->Score(packed.batch, {}));
    return LossOf(batch, packed, scores.log_prob, ref_log_prob, sums).status();
  }
  const auto loss = [&](const TokenScores& scores) -> absl::StatusOr<TokenGradients> {
    TokenGradients gradients;
    ASSIGN_OR_RETURN(gradients.d_log_prob, LossOf(batch, packed, scores.log_prob, ref_log_prob, sums));
    return gradients;
  };
  return model_->ForwardBackward(packed.batch, TokenScoring{}, loss, mode);
}

absl::Status PreferenceRole::RunMicroBatches(const Batch& batch, Pass pass, PhaseTimer* phases, MetricSums* sums) {
  GradientMode mode = GradientMode::kOverwrite;
  RETURN_IF_ERROR(ForEachMicroBatch(batch.groups, [&](const PackedGroups& packed) -> absl::Status {
    RETURN_IF_ERROR(RunMicroBatch(batch, packed, pass, mode, phases, sums));
    if (pass == Pass::kForward) return absl::OkStatus();
    mode = GradientMode::kAccumulate;
    if (phases != nullptr) phases->End("forward_backward");
    Failpoint("engine.micro_batch");
    return absl::OkStatus();
  }));
  // A rank without a micro-batch still takes part in the sum over all ranks.
  if (pass == Pass::kTrain && mode == GradientMode::kOverwrite) return parameters_->ZeroGradients();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> PreferenceRole::LossOf(const Batch& batch, const PackedGroups& packed,
                                                          absl::Span<const float> log_prob,
                                                          absl::Span<const float> ref_log_prob,
                                                          MetricSums* sums) const {
  if (tuning_.pairs) {
    const std::vector<PreferencePair> pairs = PairsOf(packed);
    return LossOfPairs(
        batch, {.batch = packed.tokens(), .pairs = pairs, .log_prob = log_prob, .ref_log_prob = ref_log_prob}, sums);
  }
  std::vector<uint8_t> desirable;
  for (const int32_t place : packed.groups) {
    desirable.push_back(batch.data->labelled(batch.rows[static_cast<size_t>(place)]).wanted);
  }
  return LossOfLabelled(
      batch, {.batch = packed.tokens(), .desirable = desirable, .log_prob = log_prob, .ref_log_prob = ref_log_prob},
      sums);
}

absl::StatusOr<std::vector<float>> PreferenceRole::LossOfRewards(const Batch& batch, const PackedGroups& packed,
                                                                 absl::Span<const float> values,
                                                                 MetricSums* sums) const {
  std::vector<float> margin;
  for (const int32_t place : packed.groups) {
    margin.push_back(static_cast<float>(batch.data->margin(batch.rows[static_cast<size_t>(place)])));
  }
  std::vector<float> d_values(values.size());
  ASSIGN_OR_RETURN(const RewardModelMetrics metrics,
                   PairRewardLoss(*tuning_.reward_model, packed, values, margin, batch.totals.pairs, d_values));
  sums->AddSum("loss", metrics.loss);
  sums->AddMean("rewards/chosen", metrics.chosen_reward);
  sums->AddMean("rewards/rejected", metrics.rejected_reward);
  sums->AddMean("rewards/margins", metrics.margin);
  sums->AddMean("rewards/accuracies", metrics.accuracy);
  return d_values;
}

absl::StatusOr<std::vector<float>> PreferenceRole::LossOfPairs(const Batch& batch, const PreferenceInputs& inputs,
                                                               MetricSums* sums) const {
  std::vector<float> d_log_prob(inputs.log_prob.size());
  ASSIGN_OR_RETURN(const PreferenceMetrics metrics,
                   PreferenceLoss(tuning_.of_pairs, inputs, batch.totals, std::span<float>(d_log_prob)));
  sums->AddSum("loss", metrics.loss);
  if (tuning_.of_pairs.type == PreferenceLossType::kOrpo) sums->AddSum("nll_loss", metrics.nll);
  sums->AddMean("rewards/chosen", metrics.chosen_reward);
  sums->AddMean("rewards/rejected", metrics.rejected_reward);
  sums->AddMean("rewards/margins", metrics.margin);
  sums->AddMean("rewards/accuracies", metrics.accuracy);
  for (const PreferencePair& pair : inputs.pairs) {
    sums->AddMean("logps/chosen", SumOfCounted(inputs.batch, inputs.batch.sequences[pair.chosen], inputs.log_prob));
    sums->AddMean("logps/rejected", SumOfCounted(inputs.batch, inputs.batch.sequences[pair.rejected], inputs.log_prob));
  }
  return d_log_prob;
}

absl::StatusOr<std::vector<float>> PreferenceRole::LossOfLabelled(const Batch& batch, const KtoInputs& inputs,
                                                                  MetricSums* sums) const {
  std::vector<float> d_log_prob(inputs.log_prob.size());
  ASSIGN_OR_RETURN(const KtoMetrics metrics, KtoLoss(tuning_.kto, inputs, batch.reference_point, batch.totals.pairs,
                                                     std::span<float>(d_log_prob)));
  sums->AddSum("loss", metrics.loss);
  sums->AddMean("rewards/chosen", metrics.desirable_reward);
  sums->AddMean("rewards/rejected", metrics.undesirable_reward);
  for (size_t i = 0; i < inputs.desirable.size(); ++i) {
    sums->AddMean(inputs.desirable[i] != 0 ? "logps/chosen" : "logps/rejected",
                  SumOfCounted(inputs.batch, inputs.batch.sequences[i], inputs.log_prob));
  }
  return d_log_prob;
}

}  // namespace sluice::engine
