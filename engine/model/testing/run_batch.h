// One micro-batch through a model, and its loss: what tests want, and a training step avoids because it waits.
#pragma once

#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "engine/model/causal_lm.h"

namespace sluice::engine::testing {

// The sum of -log p(label) of the batch.
inline absl::StatusOr<double> ForwardLoss(CausalLm& model, const MicroBatch& batch) {
  RETURN_IF_ERROR(model.ResetLoss());
  RETURN_IF_ERROR(model.Forward(batch));
  return model.ReadLoss();
}

// The same; the parameters' gradients are replaced or added to.
inline absl::StatusOr<double> ForwardBackwardLoss(CausalLm& model, const MicroBatch& batch, double loss_scale,
                                                  GradientMode mode = GradientMode::kOverwrite) {
  RETURN_IF_ERROR(model.ResetLoss());
  RETURN_IF_ERROR(model.ForwardBackward(batch, loss_scale, mode));
  return model.ReadLoss();
}

}  // namespace sluice::engine::testing
