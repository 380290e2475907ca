// PolicyRole: what the critic does in a step.

#include <algorithm>
#include <cmath>

#include "common/config/steps.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "engine/roles/policy_role.h"

namespace sluice::engine {

absl::Status PolicyRole::OpenCritic() {
  std::vector<std::string> warnings;
  ASSIGN_OR_RETURN(critic_, Critic::Open(spec_, device_, encoder_->tokenizer().vocab_size(),
                                         TotalSteps(spec_.trainer(), training_data().steps_per_epoch), warnings));
  for (const std::string& warning : warnings) LoggerFor("engine").Warning(absl::StrCat("critic: ", warning));
  return absl::OkStatus();
}

std::vector<ModelRole::FurtherModel> PolicyRole::FurtherModels() const {
  if (critic_ == nullptr) return {};
  return {{"critic", critic_->parameters(), critic_->model(), critic_->optimizer()}};
}

absl::Status PolicyRole::ValuesStage(Step* step) {
  if (critic_ == nullptr) return NotOfThisRecipe("values");
  RETURN_IF_ERROR(communicator_->Agree(critic_->FillValues(absl::MakeSpan(step->answers))));
  step->flops += AnswerFlops(critic_->parameters()->config(), step->answers) / 3;
  Spread of_values;
  for (const Answer& answer : step->answers) {
    for (const float value : answer.value) of_values.Add(value);
  }
  step->metrics.AddSpread("critic/values", of_values);
  return absl::OkStatus();
}

absl::StatusOr<double> PolicyRole::ExplainedVariance(const Step& step) {
  // Of the returns R and of what the values miss, D = R - V: count, sums and squares.
  std::vector<double> sums(5, 0.0);
  for (const Answer& answer : step.answers) {
    if (!answer.learned) continue;
    for (size_t t = 0; t < answer.returns.size(); ++t) {
      if (!answer.Counts(t)) continue;
      const double target = answer.returns[t], missed = target - answer.value[t];
      sums[0] += 1;
      sums[1] += target;
      sums[2] += target * target;
      sums[3] += missed;
      sums[4] += missed * missed;
    }
  }
  RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(sums)));
  if (sums[0] < 2) return 0.0;
  const auto variance = [&](double sum, double squares) {
    return std::max(0.0, squares - sum * sum / sums[0]) / (sums[0] - 1);
  };
  constexpr double kLeastVariance = 1e-5;  // as verl: equal returns divide by it
  return 1 - variance(sums[3], sums[4]) / (variance(sums[1], sums[2]) + kLeastVariance);
}

absl::Status PolicyRole::UpdateCriticStage(Step* step) {
  if (critic_ == nullptr) return NotOfThisRecipe("update_critic");
  ASSIGN_OR_RETURN(const double explained, ExplainedVariance(*step));
  MetricSums& sums = step->metrics;
  ValueLossMetrics loss;
  UpdateCounts counts;
  for (int64_t pass = 0; pass < critic_->ppo_epochs(); ++pass) {
    for (const std::vector<int32_t>& chosen : MiniBatches(*step, pass, critic_->mini_batch_size())) {
      ASSIGN_OR_RETURN(const CriticUpdate update, critic_->UpdateOn(chosen, step->answers, step->step, *communicator_));
      if (update.empty) continue;
      step->flops += AnswerFlops(critic_->parameters()->config(), step->answers, chosen);
      counts.Add(update.applied);
      loss += update.loss;
    }
  }
  step->critic_skipped = counts.skipped > 0;
  sums.AddMean("critic/lr", critic_->LearningRate(step->step));
  if (counts.updates == 0) return absl::OkStatus();
  // Each rank has its part of every update's loss; the parts add up, and the step's is the mean over its updates.
  sums.AddSum("critic/vf_loss", loss.vf_loss / static_cast<double>(counts.updates));
  sums.AddMean("critic/vf_clipfrac", loss.vf_clip_fraction);
  sums.AddMean("critic/vpred_mean", loss.value);
  sums.AddMean("critic/vf_explained_var", explained);
  if (counts.applied() > 0) sums.AddMean("critic/grad_norm", counts.MeanGradNorm());
  return absl::OkStatus();
}

}  // namespace sluice::engine
