// The role of a model that learns which of given answers are better: recipes dpo, ipo, orpo, simpo and kto; and of one
// that learns to tell them apart: recipe reward_model, whose model has a value head. An answer's reward is the value at
// its last marked token, its end mark; what a chat template writes behind it changes nothing.
//
// A step is train_batch_size pairs, or labelled answers, and one update. The two answers of a pair lie in one
// micro-batch: then one forward gives both sums of log-probabilities that the pair's gradient needs, where a pass for
// the scores before another for the gradients would cost a third forward for every pair. What is paid is room: a
// micro-batch holds two rows of the largest length, and packs a little less tightly.
//
// kto's estimate of the divergence needs mismatched answers of the whole step, so that each of its steps begins with a
// forward of these through both models.
//
// Losses are divided by the number of pairs (or answers) of the step over all ranks: how rows are packed, and how many
// ranks there are, changes nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/device/phase_timer.h"
#include "engine/roles/metric_sums.h"
#include "engine/roles/model_role.h"
#include "engine/roles/preference_data.h"
#include "engine/roles/preference_options.h"
#include "engine/roles/reference_model.h"
#include "engine/roles/sequence_groups.h"

namespace sluice::engine {

class PreferenceRole : public ModelRole {
 public:
  explicit PreferenceRole(const RoleOptions& options) : ModelRole(options) {}

  absl::StatusOr<v1::StepMetrics> TrainBatch(const v1::TrainBatchOp& op) override;
  // The loss over the validation files, as one batch.
  absl::StatusOr<v1::ValidationMetrics> InferBatch(const v1::InferBatchOp& op) override;

 private:
  enum class Pass : uint8_t { kTrain, kForward };  // kTrain replaces the gradients

  // Rows that are computed together.
  struct Batch {
    const PreferenceData* data;
    absl::Span<const int64_t> rows;
    std::vector<SequenceGroup> groups;  // one for each row
    PreferenceTotals totals;            // over all ranks
    KtoReferencePoint reference_point;  // kto; over all ranks
  };
  // What was computed of them, as metrics name it, over all ranks. "loss" is among them.
  using Numbers = std::map<std::string, double>;

  absl::Status OpenData() override;
  TrainingData training_data() const override;
  absl::Status FillDataCounts(bool data_only, v1::InitializeResult* result) const override;
  CausalLmOptions model_options() const override;
  RowLengths row_lengths() const override;
  absl::Status OpenRest() override;

  // Calls `visit` for each micro-batch of this rank.
  absl::Status ForEachMicroBatch(absl::Span<const SequenceGroup> groups,
                                 absl::FunctionRef<absl::Status(const PackedGroups&)> visit) const;
  // [T], or empty where there is no reference model.
  absl::StatusOr<std::vector<float>> ReferenceLogProbs(const PackedGroups& packed);

  // Collective.
  absl::StatusOr<Numbers> Run(const PreferenceData& data, absl::Span<const int64_t> rows, Pass pass,
                              PhaseTimer* phases);
  absl::StatusOr<KtoReferencePoint> EstimateReferencePoint(const Batch& batch);
  // Of this rank; no collective.
  absl::Status RunMicroBatch(const Batch& batch, const PackedGroups& packed, Pass pass, GradientMode mode,
                             PhaseTimer* phases, MetricSums* sums);
  absl::Status RunMicroBatches(const Batch& batch, Pass pass, PhaseTimer* phases, MetricSums* sums);

  // The derivative of the batch's loss by each slot's log-probability, and the numbers of this micro-batch.
  absl::StatusOr<std::vector<float>> LossOf(const Batch& batch, const PackedGroups& packed,
                                            absl::Span<const float> log_prob, absl::Span<const float> ref_log_prob,
                                            MetricSums* sums) const;
  // The derivative by each slot's value.
  absl::StatusOr<std::vector<float>> LossOfRewards(const Batch& batch, const PackedGroups& packed,
                                                   absl::Span<const float> values, MetricSums* sums) const;
  absl::StatusOr<std::vector<float>> LossOfPairs(const Batch& batch, const PreferenceInputs& inputs,
                                                 MetricSums* sums) const;
  absl::StatusOr<std::vector<float>> LossOfLabelled(const Batch& batch, const KtoInputs& inputs,
                                                    MetricSums* sums) const;

  PreferenceTuning tuning_;
  std::optional<PreferenceData> train_;
  std::optional<PreferenceData> validation_;  // none: no validation files
  ReferenceModel reference_;                  // empty: the loss compares with none
};

}  // namespace sluice::engine
