// The role of a model that answers prompts and learns from rewards: the recipes of reinforcement learning.
//
// It hosts everything of the step that is placed on this rank's device: the policy with its optimizer, the rollout
// engine over the same weights, the reference model, the critic, the rewards and their models. A step is the stages of
// the recipe's data flow (common/config/dataflow.h), in order; what they make stays here until the step ends.
//
// Prompts are dealt to the ranks by their place in the step, so that all answers to a prompt lie on one rank; before
// the passes of the trainer the answers are dealt anew, by their length (answer_balance.h). What is sampled is a
// function of (seed, batch of prompts, place, answer); losses and advantages are divided by counts over all ranks:
// neither depends on how many ranks there are.
//
// A step begins with the next batch of prompts. Where groups that teach nothing are replaced it takes further ones, so
// that the number of batches taken is a part of the run's state.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/data/prompt_dataset.h"
#include "engine/reward/reward.h"
#include "engine/roles/answer_batch.h"
#include "engine/roles/answer_update.h"
#include "engine/roles/critic.h"
#include "engine/roles/metric_sums.h"
#include "engine/roles/model_role.h"
#include "engine/roles/policy_options.h"
#include "engine/roles/reward_model.h"
#include "engine/rollout/rollout_engine.h"

namespace sluice::engine {

class PolicyRole : public ModelRole {
 public:
  explicit PolicyRole(const RoleOptions& options) : ModelRole(options) {}

  // FailedPrecondition: another step than the next, or a stage whose inputs are not there. An error of any rank's part
  // is every rank's error; the step begins again with its first stage.
  absl::StatusOr<v1::DataflowResult> RunDataflowStage(const v1::DataflowOp& op) override;
  // Answers the validation prompts and scores the answers.
  absl::StatusOr<v1::ValidationMetrics> InferBatch(const v1::InferBatchOp& op) override;

 private:
  // The step that is under way.
  struct Step {
    int64_t step = 0;
    int64_t batches = 0;                    // of prompts that it took so far
    StepPrompts prompts;                    // of all ranks
    std::vector<Answer> answers;            // of this rank
    std::vector<Answer> baselines;          // of this rank: the most likely answer to each prompt; remax only
    std::vector<Answer> left_out;           // of this rank: of groups that teach nothing; to look at
    std::set<std::string> done;             // ops
    MetricSums metrics;                     // of this rank
    std::map<std::string, double> seconds;  // by op
    double flops = 0;                       // model FLOPs of this rank's passes so far, each counted where it is run
    bool critic_skipped = false;            // an update of the critic that was not finite
  };
  // Which answers to which prompts.
  struct GenerateOrder {
    const PromptDataset* prompts;
    absl::Span<const int64_t> rows;  // by place, of all ranks
    SamplingParams sampling;
    int64_t n = 1;              // answers to each
    uint64_t first_sample = 0;  // the stream of the first place's first answer
  };

  absl::Status OpenData() override;
  TrainingData training_data() const override;
  absl::Status FillDataCounts(bool data_only, v1::InitializeResult* result) const override;
  CausalLmOptions model_options() const override;
  absl::Status OpenRest() override;
  void ForgetAhead() override { step_.reset(); }
  std::map<std::string, std::string> ExtraState() const override;
  absl::Status RestoreExtraState(const TrainingState& state) override;
  absl::StatusOr<int64_t> BatchesTaken(const TrainingState& state) const override;
  std::vector<FurtherModel> FurtherModels() const override;

  absl::Status OpenReference();
  absl::Status OpenCritic();
  // FailedPrecondition: what the op reads of the step is not there.
  absl::Status CheckInputs(const v1::DataflowOp& op) const;

  // A batch of prompts and the answers to those of this rank.
  struct Generated {
    StepPrompts prompts;  // of all ranks
    std::vector<Answer> answers, baselines;
  };
  // Of the step's next batch. Both are collective.
  absl::StatusOr<Generated> GenerateBatch(Step* step);
  absl::Status ScoreBatch(Generated* generated, Step* step);

  // Of this rank; no collective.
  absl::StatusOr<std::vector<Answer>> GenerateAnswers(const GenerateOrder& order);
  absl::Status ScoreAnswers(const PromptDataset& prompts, absl::Span<Answer> answers, const std::string& prefix,
                            MetricSums* metrics);
  // `array` of the answers in the micro-batches, and their entropy where that is not null.
  absl::Status FillLogProbs(CausalLm& model, absl::Span<const PackedAnswers> micro_batches,
                            std::vector<float> Answer::*array, absl::Span<Answer> answers, MetricSums* entropy) const;
  // Mean divergence of the answers' tokens from the reference, by k1, over all ranks. Collective.
  absl::StatusOr<double> MeasureDivergence(absl::Span<Answer> answers);

  // The stages. Each ends with agreement over all ranks.
  absl::Status GenerateStage(Step* step);
  absl::Status RewardStage(Step* step);
  absl::Status FilterStage(Step* step);  // policy_filter.cc
  absl::Status LogProbStage(Step* step);
  absl::Status RefLogProbStage(Step* step);
  absl::Status ValuesStage(Step* step);
  absl::Status AdvantageStage(Step* step);
  absl::Status UpdateCriticStage(Step* step);
  absl::Status UpdateStage(Step* step, v1::StepMetrics* metrics);

  // One optimizer update on the answers at `chosen`.
  struct Update {
    PolicyLossMetrics loss;  // of this rank's part
    bool empty = false;      // no answer of any rank
    OptimizerStepResult applied;
  };
  // `update`: its number in the step, from 0.
  absl::StatusOr<Update> UpdateOn(const std::vector<int32_t>& chosen, int64_t update, Step* step);
  // Answer::selected of these, where the loss selects. Collective.
  absl::Status SelectFor(const std::vector<int32_t>& chosen, int64_t update, Step* step);
  // Answers (by their place in step.answers) of each update of a pass over mini-batches of `size` prompts, in order;
  // the same number on every rank.
  std::vector<std::vector<int32_t>> MiniBatches(const Step& step, int64_t pass, int64_t size) const;
  // Which of them each place of the step is in.
  std::vector<int64_t> MiniBatchOfPlaces(const Step& step, int64_t pass, int64_t size) const;
  // Deals the step's answers to the ranks by their length. Collective.
  absl::Status BalanceStep(Step* step);
  // How much of the returns' variance the values explain, over all ranks. Collective.
  absl::StatusOr<double> ExplainedVariance(const Step& step);
  absl::StatusOr<v1::StepMetrics> EndStep(Step* step, const PolicyLossMetrics& loss, const UpdateCounts& counts);

  PolicyOptions policy_;
  std::unique_ptr<PromptDataset> train_;
  std::unique_ptr<PromptDataset> validation_;  // null: no validation files
  std::unique_ptr<Reward> reward_;
  std::vector<RewardModel*> reward_models_;  // those in reward_
  bool judged_ = true;                       // false: reward `none`, whose scores say nothing
  std::unique_ptr<RolloutEngine> rollout_;
  std::unique_ptr<Parameters> reference_parameters_;  // null: nothing is compared with a reference
  std::unique_ptr<CausalLm> reference_;
  std::unique_ptr<Critic> critic_;  // null: the estimator needs no values
  KlControllerState kl_controller_;
  int64_t batches_done_ = 0;  // of prompts, taken by the steps that are done
  std::optional<Step> step_;
};

}  // namespace sluice::engine
