// The role of a causal language model that is trained on, or evaluated over, packed text: recipes sft and pretrain.
//
// State that decides the next step is: the parameters, the optimizer's state, the number of steps done and the
// counters. All of it is in a checkpoint; the data of a step is a pure function of (seed, step).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/schedule/lr_schedule.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "engine/checkpoint/training_state.h"
#include "engine/comm/communicator.h"
#include "engine/data/chat_row_encoder.h"
#include "engine/data/dataset.h"
#include "engine/device/phase_timer.h"
#include "engine/model/causal_lm.h"
#include "engine/model/parameters.h"
#include "engine/optim/adamw_optimizer.h"
#include "engine/roles/metrics_log.h"
#include "engine/roles/role.h"

namespace sluice::engine {

struct LanguageModelRoleOptions {
  int rank = 0;
  std::string host = "127.0.0.1";  // interface that peers connect to
};

class LanguageModelRole : public Role {
 public:
  explicit LanguageModelRole(const LanguageModelRoleOptions& options) : options_(options) {}

  absl::StatusOr<v1::InitializeResult> Initialize(const v1::InitializeOp& op) override;
  absl::StatusOr<v1::StepMetrics> TrainBatch(const v1::TrainBatchOp& op) override;
  absl::StatusOr<v1::ValidationMetrics> InferBatch(const v1::InferBatchOp& op) override;
  absl::StatusOr<v1::ForwardBackwardResult> ForwardBackward(const v1::ForwardBackwardOp& op) override;
  absl::StatusOr<v1::OptimizerZeroGradResult> OptimizerZeroGrad(const v1::OptimizerZeroGradOp& op) override;
  absl::StatusOr<v1::OptimizerStepResult> OptimizerStep(const v1::OptimizerStepOp& op) override;
  absl::StatusOr<v1::LrSchedulerStepResult> LrSchedulerStep(const v1::LrSchedulerStepOp& op) override;
  absl::StatusOr<v1::GenerateResult> Generate(const v1::GenerateOp& op) override;
  absl::StatusOr<v1::CheckpointResult> SaveCheckpoint(const v1::SaveCheckpointOp& op) override;
  absl::StatusOr<v1::CheckpointResult> LoadCheckpoint(const v1::LoadCheckpointOp& op) override;
  absl::StatusOr<v1::ExportWeightsResult> ExportWeights(const v1::ExportWeightsOp& op) override;
  absl::StatusOr<v1::ToResult> To(const v1::ToOp& op) override;
  CollectiveState collective_state() const override;

 private:
  struct StepTotals {
    double sum_of_squared_lengths = 0;  // of this rank
    StepBatches batches;                // of this rank; its counts are over all ranks
  };
  // What a run over a step's micro-batches does with the gradients: replaces them, adds to them, computes none.
  enum class Pass : uint8_t { kTrain, kAccumulate, kForward };

  // Initialisation, in this order. Those before the first collective only touch this rank.
  absl::Status Connect(const v1::InitializeOp& op);
  absl::Status OpenModel();
  absl::Status OpenData();
  absl::Status MakeTrainer();
  absl::Status Resume(v1::InitializeResult* result);

  // A step of TrainBatch whose forward and backward are issued.
  struct IssuedStep {
    int64_t step = 0;
    StepTotals totals;
    std::unique_ptr<PhaseTimer> phases;
  };
  // Issues forward, and backward, of step `step`; the model's loss is this step's alone.
  absl::StatusOr<StepTotals> RunStep(int64_t step, Pass pass);
  absl::StatusOr<IssuedStep> IssueStep(int64_t step);
  // Issues: gradients summed over all ranks, clipped, applied. `loss` [1] not finite: the step is skipped; or empty.
  absl::Status ApplyGradients(kernels::ConstTensorView loss);
  // Skipped steps in a row: an error once they are too many.
  absl::Status NoteSkippedStep(const StepTotals& totals);
  void FillMemory(v1::StepMetrics* metrics);

  absl::StatusOr<CheckpointStore> OpenStore() const;
  TrainingState CurrentState() const;
  absl::Status WriteCheckpointFiles(PendingCheckpoint* pending);
  absl::Status Restore(const std::string& path);
  // Writes the weights as a Hugging Face folder; on rank 0 only.
  absl::StatusOr<int64_t> WriteHuggingFaceFolder(const std::string& path);

  absl::Status RequireTrainer() const;    // initialised for training
  absl::Status RequireTrainable() const;  // and everything is on the device
  absl::Status RequireLoaded() const;     // initialised with a model
  absl::Status RequireModel() const;      // and it is on the device

  const LanguageModelRoleOptions options_;
  v1::JobSpec spec_;
  std::string attempt_name_;
  kernels::Device device_;
  std::shared_ptr<Communicator> communicator_;
  mutable absl::Mutex communicator_mutex_;  // guards the pointer: collective_state comes from other threads

  std::unique_ptr<ChatRowEncoder> encoder_;  // tokenizer and chat template
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<CausalLm> model_;
  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> validation_;        // null: no validation files
  std::unique_ptr<AdamWOptimizer> optimizer_;  // null: forward_only
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<MetricsLog> metrics_log_;  // rank 0 only

  bool model_on_host_ = false, optimizer_on_host_ = false, gradients_on_host_ = false;  // To moved them out
  std::optional<IssuedStep> ahead_;  // the next step, where it is under way

  int64_t total_steps_ = 0;
  int64_t steps_done_ = 0;
  int64_t schedule_steps_ = 0;  // lr_scheduler_step calls; equal to steps_done_ unless the primitives are used
  TrainingCounters counters_;
};

}  // namespace sluice::engine
