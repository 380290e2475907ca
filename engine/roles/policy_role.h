// The role of a model that answers prompts and learns from rewards: the recipes of reinforcement learning.
//
// It hosts everything of the step that is placed on this rank's pool (common/config/pools.h): the policy with its
// optimizer, the rollout engine over the same weights, the reference model, the critic, the rewards and their models. A
// step is the stages of the job's data flow (common/config/dataflow.h); what they make stays here until the step ends.
// What stages of other pools made of the answers is fetched from there; a rollout without the actor beside it has the
// weights by broadcast.
//
// Prompts are dealt to the ranks of a pool by their place in the step, so that all answers to a prompt lie on one rank;
// where they are trained the answers are then dealt anew, by their length (answer_balance.h). What is sampled is a
// function of (seed, batch of prompts, place, answer); losses and advantages are divided by counts over all ranks:
// neither depends on how many ranks there are, nor on pools.
//
// A step begins with the next batch of prompts. Where groups that teach nothing are replaced it takes further ones, so
// that the number of batches taken is a part of the run's state.
//
// Threads: as Role, and a stage that runs beside (DataflowOp::beside) may run on a thread of its own while another of
// the same step runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/data/prompt_dataset.h"
#include "engine/exchange/batch_service.h"
#include "engine/exchange/batch_store.h"
#include "engine/reward/reward.h"
#include "engine/roles/answer_batch.h"
#include "engine/roles/answer_columns.h"
#include "engine/roles/answer_scores.h"
#include "engine/roles/answer_update.h"
#include "engine/roles/critic.h"
#include "engine/roles/metric_sums.h"
#include "engine/roles/model_role.h"
#include "engine/roles/policy_options.h"
#include "engine/roles/reward_model.h"
#include "engine/rollout/rollout_engine.h"

namespace sluice::engine {

// Times of stages are among the numbers of a step under this and the op's name, until the step ends.
inline constexpr char kSecondsOf[] = "seconds/";

class PolicyRole : public ModelRole {
 public:
  explicit PolicyRole(const RoleOptions& options) : ModelRole(options) {}

  // FailedPrecondition: another step than the next, or a stage whose inputs are not there. An error of any rank's part
  // is every rank's error; the step begins again with its first stage.
  absl::StatusOr<v1::DataflowResult> RunDataflowStage(const v1::DataflowOp& op) override;
  // Answers the validation prompts and scores the answers. Of all ranks, whatever their pool.
  absl::StatusOr<v1::ValidationMetrics> InferBatch(const v1::InferBatchOp& op) override;
  absl::StatusOr<v1::CheckpointResult> SaveCheckpoint(const v1::SaveCheckpointOp& op) override;

 private:
  // A stage that scores.
  struct Scorer {
    std::string stage;                 // its name
    std::unique_ptr<Reward> reward;    // null: answers are scored on another pool
    std::vector<RewardModel*> models;  // those in it
  };
  // What it made of a step's answers. Scorers may run beside each other, and beside other stages: each has its own.
  struct Scored {
    StageResults answers, baselines;
    MetricSums metrics;  // of this rank
  };
  // A step that is under way.
  struct Step {
    int64_t step = 0;
    int64_t batches = 0;            // of prompts that it took so far
    StepPrompts prompts;            // of all ranks
    std::vector<Answer> answers;    // of this rank
    std::vector<Answer> baselines;  // of this rank: the most likely answer to each prompt; remax only
    std::vector<Answer> left_out;   // of this rank: of groups that teach nothing; to look at
    std::set<std::string> done;     // ops, on whichever pool; under steps_mutex_
    std::set<size_t> scorers_done;  // of scored; under steps_mutex_
    MetricSums metrics;             // of this rank
    std::vector<Scored> scored;     // by each of scorers_
    double flops = 0;               // model FLOPs of this rank's passes so far, each counted where it is run
    bool dealt_anew = false;        // the answers, by BalanceStep
    bool critic_skipped = false;    // an update of the critic that was not finite
  };
  // Which answers to which prompts.
  struct GenerateOrder {
    const PromptDataset* prompts;
    absl::Span<const int64_t> rows;  // by place, of all ranks
    SamplingParams sampling;
    int64_t n = 1;                  // answers to each
    uint64_t first_sample = 0;      // the stream of the first place's first answer
    MetricSums* metrics = nullptr;  // gets timing_s/switch; or null
  };

  absl::Status ConnectFurther(const CommunicatorOptions& world) override;
  absl::Status OpenData() override;
  TrainingData training_data() const override;
  absl::Status FillDataCounts(bool data_only, v1::InitializeResult* result) const override;
  CausalLmOptions model_options() const override;
  absl::Status OpenRest() override;
  void ForgetAhead() override;
  std::map<std::string, std::string> ExtraState() const override;
  absl::Status RestoreExtraState(const TrainingState& state) override;
  absl::StatusOr<int64_t> BatchesTaken(const TrainingState& state) const override;
  std::vector<FurtherModel> FurtherModels() const override;

  absl::Status OpenScorers();
  absl::Status OpenReference();
  absl::Status OpenCritic();
  // FailedPrecondition: the op is not this rank's to do, or not now: another step than the next, other weights.
  absl::Status CheckTurn(const v1::DataflowOp& op) const;
  // Its place in scorers_. FailedPrecondition: no such stage scores.
  absl::StatusOr<size_t> ScorerOf(const std::string& stage) const;
  void NoteDone(const std::string& op, const std::string& stage, Step* step);
  // FailedPrecondition: what the op reads of the step is not there.
  absl::Status CheckInputs(const v1::DataflowOp& op, const Step& step) const;
  // The step that the op belongs to: new where it begins here. FailedPrecondition: nothing of it is here.
  absl::StatusOr<std::shared_ptr<Step>> StepOf(const v1::DataflowOp& op);
  void DropStep(int64_t step);

  // The other pools (policy_exchange.cc). Fetches what the op needs of them, and deals answers anew once they came:
  // bytes. Collective over `ranks`.
  absl::StatusOr<int64_t> FetchInputs(const v1::DataflowOp& op, Step* step, Communicator& ranks);
  // What one stage of theirs made: op.inputs() from `begin` to `end`. No collective.
  struct FetchedStage {
    int64_t bytes = 0;
    bool answers = false;  // new ones
  };
  absl::StatusOr<FetchedStage> FetchStage(const v1::DataflowOp& op, int begin, int end, Step* step);
  // What it fetches of a batch: its part of all places or, once answers were dealt anew, those of its answers.
  RowChoice RowsOfThisRank(const Step& step) const;
  // Puts a batch of this stage where it belongs.
  absl::StatusOr<ColumnsOrigin> TakeBatch(const arrow::RecordBatch& batch, const std::string& stage, Step* step);
  // FailedPrecondition: answers of weights that are older than the mode allows.
  absl::Status CheckStaleness(absl::Span<const Answer> answers) const;
  // Keeps what the op made for its readers. `seconds`: that it took.
  absl::Status KeepOutputs(const v1::DataflowOp& op, double seconds, Step* step, v1::DataflowResult* result);
  absl::StatusOr<v1::DataflowResult> SyncWeights(const v1::DataflowOp& op);

  // A batch of prompts and the answers to those of this rank.
  struct Generated {
    StepPrompts prompts;  // of all ranks
    std::vector<Answer> answers, baselines;
  };
  // Of the step's next batch. Collective.
  absl::StatusOr<Generated> GenerateBatch(Step* step);
  // By one scorer. Collective over `ranks`. Touches nothing of the answers: other stages may write to them meanwhile.
  absl::StatusOr<Scored> ScoreBatch(size_t scorer, absl::Span<const Answer> answers, absl::Span<const Answer> baselines,
                                    Step* step, Communicator& ranks);
  // The scores of all scorers become the answers' own. Collective.
  absl::Status AddUpStages(absl::Span<const Scored> scored, absl::Span<Answer> answers, absl::Span<Answer> baselines,
                           MetricSums* metrics);

  // Makes rollout_, once: when it is needed everything else has its memory, and its cache gets of what is left.
  absl::Status OpenRollout();
  // Of this rank; no collective.
  absl::StatusOr<std::vector<Answer>> GenerateAnswers(const GenerateOrder& order);
  absl::StatusOr<StageResults> ScoreAnswers(const Scorer& scorer, const PromptDataset& prompts,
                                            absl::Span<const Answer> answers, const std::string& prefix,
                                            MetricSums* metrics) const;
  // `array` of the answers in the micro-batches, and their entropy where that is not null.
  absl::Status FillLogProbs(CausalLm& model, absl::Span<const PackedAnswers> micro_batches,
                            std::vector<float> Answer::*array, absl::Span<Answer> answers, WeightedSum* entropy) const;
  // Mean divergence of the answers' tokens from the reference, by k1, over all ranks of the world. Collective there.
  absl::StatusOr<double> MeasureDivergence(absl::Span<Answer> answers);

  // The stages. Each ends with agreement over all ranks.
  absl::Status GenerateStage(Step* step);
  // `ranks`: the pool's, in the group that the stage runs in.
  absl::Status ScoreStage(const std::string& stage, Step* step, Communicator& ranks);
  absl::Status FilterStage(Step* step);  // policy_filter.cc
  absl::Status LogProbStage(Step* step);
  absl::Status RefLogProbStage(Step* step);
  // In place of LogProbStage, where the data flow has none.
  absl::Status TakeRolloutLogProbs(Step* step);
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
  // Deals the step's answers to the actor's ranks by their length: once they are all there, those left out left out.
  // Collective.
  absl::Status BalanceStep(Step* step);
  // Writes the answers to trainer.rollout_data_dir, where that is given. No collective.
  absl::Status DumpAnswers(int64_t step, absl::Span<const std::vector<Answer>* const> lists) const;
  // How much of the returns' variance the values explain, over all ranks. Collective.
  absl::StatusOr<double> ExplainedVariance(const Step& step);
  absl::StatusOr<v1::StepMetrics> EndStep(Step* step, const PolicyLossMetrics& loss, const UpdateCounts& counts);

  PolicyOptions policy_;
  std::unique_ptr<PromptDataset> train_;
  std::unique_ptr<PromptDataset> validation_;         // null: no validation files
  std::vector<Scorer> scorers_;                       // in the order in which their scores are added up
  bool judged_ = true;                                // false: reward `none`, whose scores say nothing
  std::unique_ptr<RolloutEngine> rollout_;            // null: on another pool, or not needed yet
  std::unique_ptr<Parameters> reference_parameters_;  // null: nothing is compared with a reference, or elsewhere
  std::unique_ptr<CausalLm> reference_;
  std::unique_ptr<Critic> critic_;  // null: the estimator needs no values
  KlControllerState kl_controller_;
  int64_t further_batches_ = 0;  // of prompts, that the steps so far took beyond one each
  // The last step that was filtered here for another pool to train: what it took of further_batches_.
  struct {
    int64_t step = 0;
    int64_t further_batches = 0;
  } last_filtered_;
  bool has_logprob_ = true;  // the data flow has a stage of this op
  absl::Time step_since_;    // when what the next step's time counts from ended
  absl::Mutex steps_mutex_;
  std::map<int64_t, std::shared_ptr<Step>> steps_ ABSL_GUARDED_BY(steps_mutex_);  // under way, by number

  std::shared_ptr<Communicator> beside_;   // the pool's ranks once more, for stages that run beside
  std::unique_ptr<Communicator> weights_;  // rank 0 and the rollout's pool; null: one pool, or not of these
  double weight_sync_seconds_ = 0;         // rank 0: of the last one, until a step has told it
  std::unique_ptr<BatchStore> kept_;       // null: one pool
  std::unique_ptr<BatchServer> batches_;   // serves it
};

}  // namespace sluice::engine
