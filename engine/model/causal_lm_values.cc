// CausalLm with a value head.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/device/device_memory.h"
#include "engine/model/causal_lm.h"
#include "kernels/flat/flat.h"
#include "kernels/value_head/value_head.h"

namespace sluice::engine {

using kernels::ConstTensorView;
using kernels::TensorView;

absl::StatusOr<std::vector<float>> CausalLm::Values(const MicroBatch& batch) {
  RETURN_IF_ERROR(RequireHead(/*value_head=*/true));
  RETURN_IF_ERROR(Upload(batch));
  std::vector<float> values(static_cast<size_t>(slots_), 0.0f);
  if (tokens_ == 0) return values;
  RETURN_IF_ERROR(RunForward(Context(batch, GradientMode::kAccumulate)));
  // By itself, as the language-model head: on CUDA it cannot be recorded.
  RETURN_IF_ERROR(kernels::Forward(kernels::ValueHeadForward{.hidden = hidden_.Rows(0, tokens_),
                                                             .weight = parameters_->weights().head,
                                                             .value = log_prob_.Rows(0, tokens_)},
                                   stream_));
  RETURN_IF_ERROR(CopyTensor(log_prob_.Rows(0, tokens_), TensorView(values.data(), {tokens_})));
  std::fill(values.begin() + batch.used_slots(), values.end(), 0.0f);
  return values;
}

absl::Status CausalLm::ForwardBackward(
    const MicroBatch& batch,
    absl::FunctionRef<absl::StatusOr<std::vector<float>>(const std::vector<float>& values)> loss, GradientUse use) {
  if (!options_.backward) return absl::FailedPreconditionError("the model was created without a backward");
  ASSIGN_OR_RETURN(const std::vector<float> values, Values(batch));
  if (tokens_ == 0) return BackwardOfNothing(use);
  const bool overwrites = use.mode == GradientMode::kOverwrite;
  ASSIGN_OR_RETURN(std::vector<float> d_values, loss(values));
  if (d_values.size() != values.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradients of ", d_values.size(), " values for ", values.size(), " slots"));
  }
  std::fill(d_values.begin() + batch.used_slots(), d_values.end(), 0.0f);
  const TensorView d_value = loss_gradient_.Rows(0, tokens_);
  RETURN_IF_ERROR(CopyTensor(ConstTensorView(d_values.data(), {tokens_}), d_value));
  if (overwrites) RETURN_IF_ERROR(ClearOverwritten());
  const TensorView hidden = hidden_.Rows(0, tokens_);
  RETURN_IF_ERROR(kernels::Backward(kernels::ValueHeadBackward{.hidden = hidden,
                                                               .weight = parameters_->weights().head,
                                                               .d_value = d_value,
                                                               .dhidden = hidden,
                                                               .dweight = parameters_->gradient_weights().head,
                                                               .accumulate_dweight = !overwrites},
                                    stream_));
  return RunBackward(Context(batch, use.mode), use);
}

}  // namespace sluice::engine
