// The role of a model that learns a teacher's distributions over the tokens of given answers: recipe
// knowledge_distillation. Rows, steps and validation are those of recipe sft; the loss of a scored token is
// kd_ratio * divergence + (1 - kd_ratio) * -log p(label), divided by the step's scored tokens over all ranks
// (kernels/distillation/distillation.h). The teacher, reference.path, is a second model on the same device, without
// gradients: each micro-batch runs through it first.
//
// Metrics, means over scored tokens: `distillation/divergence`, `distillation/nll`, and both with `val/` before them.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/roles/language_model_role.h"
#include "engine/roles/reference_model.h"

namespace sluice::engine {

class DistillationRole : public LanguageModelRole {
 public:
  explicit DistillationRole(const RoleOptions& options) : LanguageModelRole(options) {}

 private:
  absl::Status OpenRest() override;
  absl::Status ForwardOn(const MicroBatch& batch) override;
  absl::Status ForwardBackwardOn(const MicroBatch& batch, double loss_scale, GradientUse use) override;
  absl::StatusOr<std::map<std::string, double>> FurtherNumbers(int64_t scored_tokens) override;
  double FurtherFlops(double tokens, double sum_of_squared_lengths) const override;
  bool reads_numbers() const override { return true; }

  // What the teacher says of the batch.
  absl::StatusOr<Teaching> Teach(const MicroBatch& batch);

  ReferenceModel teacher_;  // empty where there is no data to learn from
};

}  // namespace sluice::engine
