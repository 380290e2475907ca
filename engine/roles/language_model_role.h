// The role of a causal language model that is trained on, or evaluated over, packed text: recipes sft and pretrain, and
// with a loss of its own knowledge_distillation (distillation_role.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/dataset.h"
#include "engine/device/phase_timer.h"
#include "engine/roles/model_role.h"

namespace sluice::engine {

class LanguageModelRole : public ModelRole {
 public:
  explicit LanguageModelRole(const RoleOptions& options) : ModelRole(options) {}

  absl::StatusOr<v1::StepMetrics> TrainBatch(const v1::TrainBatchOp& op) override;
  absl::StatusOr<v1::ValidationMetrics> InferBatch(const v1::InferBatchOp& op) override;
  absl::StatusOr<v1::ForwardBackwardResult> ForwardBackward(const v1::ForwardBackwardOp& op) override;

 protected:
  // The loss of a micro-batch, added to the model's, and what it computes besides the model's forward and backward.
  virtual absl::Status ForwardOn(const MicroBatch& batch);
  virtual absl::Status ForwardBackwardOn(const MicroBatch& batch, double loss_scale, GradientUse use);
  // Further numbers of the micro-batches since the loss was reset, over all ranks, by name; a mean is over
  // `scored_tokens`. Collective; waits for the device.
  virtual absl::StatusOr<std::map<std::string, double>> FurtherNumbers(int64_t scored_tokens);
  // FLOPs of a step beside the model's.
  virtual double FurtherFlops(double tokens, double sum_of_squared_lengths) const { return 0; }
  // Whether a step's numbers are read before the next step's work is issued.
  virtual bool reads_numbers() const { return false; }

  bool has_data() const { return train_ != nullptr; }

 private:
  struct StepTotals {
    double sum_of_squared_lengths = 0;  // of this rank
    StepBatches batches;                // of this rank; its counts are over all ranks
  };
  // What a run over a step's micro-batches does with the gradients: replaces them, adds to them, computes none.
  enum class Pass : uint8_t { kTrain, kAccumulate, kForward };

  // A step of TrainBatch whose forward and backward are issued.
  struct IssuedStep {
    int64_t step = 0;
    StepTotals totals;
    std::unique_ptr<PhaseTimer> phases;
  };

  absl::Status OpenData() override;
  TrainingData training_data() const override;
  absl::Status FillDataCounts(bool data_only, v1::InitializeResult* result) const override;
  RowLengths row_lengths() const override;
  void ForgetAhead() override { ahead_.reset(); }

  // Issues forward, and backward, of step `step`; the model's loss is this step's alone.
  absl::StatusOr<StepTotals> RunStep(int64_t step, Pass pass);
  absl::StatusOr<IssuedStep> IssueStep(int64_t step);
  // The model's loss over all ranks; waits for it.
  absl::StatusOr<double> SumLoss();

  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> validation_;  // null: no validation files
  std::optional<IssuedStep> ahead_;      // the next step, where it is under way
};

}  // namespace sluice::engine
