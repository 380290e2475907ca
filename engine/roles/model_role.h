// What every role does with its one model, whatever it learns from: communicator, tokenizer, weights, optimizer,
// schedule, checkpoints, export, moves between device and host.
//
// A kind of role adds its data and its steps by the hooks below. State that decides the next step is: the parameters,
// the optimizer's state, the number of steps done, the counters, and what ExtraState adds. All of it is in a
// checkpoint; the data of a step is a pure function of (seed, batches taken so far).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/config/pools.h"
#include "common/schedule/lr_schedule.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "engine/checkpoint/training_state.h"
#include "engine/comm/communicator.h"
#include "engine/data/chat_row_encoder.h"
#include "engine/model/causal_lm.h"
#include "engine/model/parameters.h"
#include "engine/optim/adamw_optimizer.h"
#include "engine/roles/memory_check.h"
#include "engine/roles/metrics_log.h"
#include "engine/roles/role.h"

namespace sluice::engine {

struct RoleOptions {
  int rank = 0;
  std::string host = "127.0.0.1";  // interface that peers connect to
};

class ModelRole : public Role {
 public:
  absl::StatusOr<v1::InitializeResult> Initialize(const v1::InitializeOp& op) override;
  // FailedPrecondition unless the kind of role has them.
  absl::StatusOr<v1::StepMetrics> TrainBatch(const v1::TrainBatchOp& op) override;
  absl::StatusOr<v1::ForwardBackwardResult> ForwardBackward(const v1::ForwardBackwardOp& op) override;
  absl::StatusOr<v1::DataflowResult> RunDataflowStage(const v1::DataflowOp& op) override;

  absl::StatusOr<v1::OptimizerZeroGradResult> OptimizerZeroGrad(const v1::OptimizerZeroGradOp& op) override;
  absl::StatusOr<v1::OptimizerStepResult> OptimizerStep(const v1::OptimizerStepOp& op) override;
  absl::StatusOr<v1::LrSchedulerStepResult> LrSchedulerStep(const v1::LrSchedulerStepOp& op) override;
  absl::StatusOr<v1::GenerateResult> Generate(const v1::GenerateOp& op) override;
  absl::StatusOr<v1::CheckpointResult> SaveCheckpoint(const v1::SaveCheckpointOp& op) override;
  absl::StatusOr<v1::CheckpointResult> LoadCheckpoint(const v1::LoadCheckpointOp& op) override;
  absl::StatusOr<v1::ExportWeightsResult> ExportWeights(const v1::ExportWeightsOp& op) override;
  absl::StatusOr<v1::ToResult> To(const v1::ToOp& op) override;
  CollectiveState collective_state() const override;

 protected:
  // What a role's training data is to checkpoints and schedules.
  struct TrainingData {
    int64_t rows = 0;  // 0: the data is not open
    int64_t steps_per_epoch = 0;
    std::string fingerprint;  // other data under the same cursor would be another run
  };

  // A model that is trained beside the role's own. In a checkpoint it has two files, `<name>_weights.safetensors` and
  // `<name>_optimizer.safetensors`; it is exported beside the model, as `<folder>_<name>`.
  struct FurtherModel {
    std::string name;
    Parameters* parameters = nullptr;
    CausalLm* model = nullptr;
    AdamWOptimizer* optimizer = nullptr;
  };

  explicit ModelRole(const RoleOptions& options) : options_(options) {}

  // Groups of ranks beside those of the pool and of the world, where the job has several pools. `world`: the options of
  // the latter. Called once, first; collective.
  virtual absl::Status ConnectFurther(const CommunicatorOptions& world) { return absl::OkStatus(); }
  // Opens training and validation data. Called once, after the tokenizer and before the model; on this rank alone.
  virtual absl::Status OpenData() = 0;
  virtual TrainingData training_data() const = 0;
  // Counts of the data for the answer to Initialize.
  virtual absl::Status FillDataCounts(bool data_only, v1::InitializeResult* result) const = 0;
  // How the model is made, and lengths of the rows for the check of free memory.
  virtual CausalLmOptions model_options() const;
  virtual RowLengths row_lengths() const { return {}; }
  // After the model is there, for training or for looking at it.
  virtual absl::Status OpenRest() { return absl::OkStatus(); }
  // Work that was issued ahead, or state that belongs to other weights, is to be forgotten.
  virtual void ForgetAhead() {}
  // State of the recipe that a checkpoint keeps, and its way back (InvalidArgument where it is not what was kept).
  virtual std::map<std::string, std::string> ExtraState() const { return {}; }
  virtual absl::Status RestoreExtraState(const TrainingState& state) { return absl::OkStatus(); }
  // Batches of the data that the steps of `state` took; its `step` and `extra` are there. Each step takes one, unless
  // the kind of role says otherwise.
  virtual absl::StatusOr<int64_t> BatchesTaken(const TrainingState& state) const { return state.step; }

  virtual std::vector<FurtherModel> FurtherModels() const { return {}; }

  // Issues: gradients summed over all ranks, clipped, applied. `loss` [1] not finite: the step is skipped; or empty.
  absl::Status ApplyGradients(kernels::ConstTensorView loss);
  // The same with gradients that are summed already.
  absl::Status ApplySummedGradients(kernels::ConstTensorView loss);
  // What became of it: waits.
  absl::StatusOr<OptimizerStepResult> ReadApplied();
  // To be called with the numbers of a validation, on all ranks, before they are logged: says in them whether they are
  // the best so far (checkpoint.best_metric), and keeps them for the checkpoint of the same step.
  // InvalidArgument: the validation has results, but not that one.
  absl::Status NoteValidation(v1::ValidationMetrics* metrics);
  // Skipped steps in a row: an error once they are too many. `rows`: of this rank, for the log.
  absl::Status NoteSkippedStep(const std::vector<int64_t>& rows);
  void FillMemory(v1::StepMetrics* metrics) const;

  // This rank has gradients and an optimizer.
  bool trains() const { return pool_.actor && !spec_.engine().forward_only(); }

  // It has the policy's weights: all but a pool that only compares.
  bool has_policy() const { return pool_.actor || pool_.rollout; }

  absl::Status NotOfThisRecipe(const std::string& op) const;
  absl::Status RequireTrainer() const;    // initialised for training
  absl::Status RequireTrainable() const;  // and everything is on the device
  absl::Status RequireLoaded() const;     // initialised with a model
  absl::Status RequireModel() const;      // and it is on the device

  const RoleOptions options_;
  v1::JobSpec spec_;
  std::string attempt_name_;
  kernels::Device device_;
  Pool pool_;                                   // this rank's; hosts everything where the job has no pools
  std::shared_ptr<Communicator> communicator_;  // of the pool's ranks: the data-parallel group
  std::shared_ptr<Communicator> world_;         // of all ranks; the same where there is one pool

  std::unique_ptr<ChatRowEncoder> encoder_;  // tokenizer and chat template
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<CausalLm> model_;
  std::unique_ptr<AdamWOptimizer> optimizer_;  // null: this rank does not train
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<MetricsLog> metrics_log_;  // rank 0 only

  int64_t total_steps_ = 0;
  int64_t steps_done_ = 0;
  int64_t schedule_steps_ = 0;  // lr_scheduler_step calls; equal to steps_done_ unless the primitives are used
  TrainingCounters counters_;
  v1::ValidationMetrics last_validation_;

 private:
  // Initialisation, in this order. Those before the first collective only touch this rank.
  absl::Status Connect(const v1::InitializeOp& op);
  absl::Status ConnectPool(const CommunicatorOptions& world);
  absl::Status OpenModel();
  absl::Status MakeTrainer();
  absl::Status Resume(v1::InitializeResult* result);

  absl::StatusOr<CheckpointStore> OpenStore() const;
  // The place in the data after so many batches.
  void SetCursor(int64_t batches, DataCursor* cursor) const;
  absl::StatusOr<TrainingState> CurrentState() const;
  absl::Status WriteCheckpointFiles(PendingCheckpoint* pending);
  // The weights and the optimizer's state of one model, as save_contents says, in files that begin with `prefix`.
  absl::Status WriteModelFiles(const std::string& prefix, const Parameters& parameters, const AdamWOptimizer& optimizer,
                               PendingCheckpoint* pending) const;
  absl::Status Restore(const std::string& path);
  // Writes the weights of all models as Hugging Face folders; on rank 0 only. Bytes.
  absl::StatusOr<int64_t> WriteHuggingFaceFolders(const std::string& path) const;
  absl::StatusOr<int64_t> WriteHuggingFaceFolder(const Parameters& parameters, const std::string& path) const;

  mutable absl::Mutex communicator_mutex_;  // guards the pointer: collective_state comes from other threads
  bool model_on_host_ = false, optimizer_on_host_ = false, gradients_on_host_ = false;  // To moved them out
};

}  // namespace sluice::engine
