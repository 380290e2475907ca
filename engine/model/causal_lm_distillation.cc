// CausalLm with a teacher.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/device/device_memory.h"
#include "engine/model/causal_lm.h"
#include "kernels/distillation/distillation.h"
#include "kernels/flat/flat.h"

namespace sluice::engine {

using kernels::ConstTensorView;
using kernels::TensorView;

absl::StatusOr<ConstTensorView> CausalLm::HiddenStates(const MicroBatch& batch) {
  RETURN_IF_ERROR(RequireHead(/*value_head=*/false));
  RETURN_IF_ERROR(Upload(batch));
  if (tokens_ > 0) RETURN_IF_ERROR(RunForward(Context(batch, GradientMode::kAccumulate)));
  return hidden_.Rows(0, tokens_);
}

absl::Status CausalLm::CheckTeaching(const Teaching& teaching) const {
  if (teaching.hidden.dim(0) == tokens_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("states of ", teaching.hidden.dim(0), " slots from the teacher for ",
                                                 tokens_, " slots of the student"));
}

kernels::DistillationInputs CausalLm::DistillationInputsOf(const Teaching& teaching) const {
  const kernels::CrossEntropyInputs head = HeadInputs();
  const int64_t vocabulary = std::min(head.weight.dim(0), teaching.head.dim(0));
  return {.hidden = head.hidden,
          .weight = head.weight.Rows(0, vocabulary),
          .teacher_hidden = teaching.hidden,
          .teacher_weight = teaching.head.Rows(0, vocabulary),
          .labels = head.labels,
          .scored = head.scored,
          .divergence = teaching.divergence,
          .top_k = teaching.top_k,
          .temperature = teaching.temperature};
}

absl::Status CausalLm::AddDistillationLoss(const Teaching& teaching) {
  const TensorView divergence = divergence_.Rows(0, tokens_), log_prob = log_prob_.Rows(0, tokens_);
  RETURN_IF_ERROR(kernels::AddSum(divergence, 1.0, distillation_sums_.Rows(0, 1), stream_));
  RETURN_IF_ERROR(kernels::AddSum(log_prob, -1.0, distillation_sums_.Rows(1, 2), stream_));
  RETURN_IF_ERROR(kernels::AddSum(divergence, teaching.kd_ratio, loss_sum_, stream_));
  return kernels::AddSum(log_prob, teaching.kd_ratio - 1.0, loss_sum_, stream_);
}

absl::Status CausalLm::Forward(const MicroBatch& batch, const Teaching& teaching) {
  if (!options_.distillation) return absl::FailedPreconditionError("the model was created without distillation");
  ASSIGN_OR_RETURN(const ConstTensorView hidden, HiddenStates(batch));
  RETURN_IF_ERROR(CheckTeaching(teaching));
  if (hidden.dim(0) == 0) return absl::OkStatus();
  RETURN_IF_ERROR(kernels::Forward(kernels::DistillationForward{.in = DistillationInputsOf(teaching),
                                                                .divergence = divergence_.Rows(0, tokens_),
                                                                .log_prob = log_prob_.Rows(0, tokens_)},
                                   stream_));
  return AddDistillationLoss(teaching);
}

absl::Status CausalLm::ForwardBackward(const MicroBatch& batch, const Teaching& teaching, double loss_scale,
                                       GradientUse use) {
  if (!options_.distillation) return absl::FailedPreconditionError("the model was created without distillation");
  if (!options_.backward) return absl::FailedPreconditionError("the model was created without a backward");
  RETURN_IF_ERROR(RequireHead(/*value_head=*/false));
  RETURN_IF_ERROR(Upload(batch));
  RETURN_IF_ERROR(CheckTeaching(teaching));
  if (tokens_ == 0) return BackwardOfNothing(use);
  const bool overwrites = use.mode == GradientMode::kOverwrite;
  const LayerContext context = Context(batch, use.mode);
  if (overwrites) RETURN_IF_ERROR(ClearOverwritten());
  RETURN_IF_ERROR(RunForward(context));
  const kernels::DistillationInputs inputs = DistillationInputsOf(teaching);
  const TensorView dweight = parameters_->gradient_weights().head;
  const int64_t vocabulary = inputs.weight.dim(0);
  // Rows that the teacher does not have.
  if (overwrites && vocabulary < dweight.dim(0)) {
    RETURN_IF_ERROR(kernels::Fill(dweight.Rows(vocabulary, dweight.dim(0)), 0.0f, stream_));
  }
  RETURN_IF_ERROR(kernels::ForwardBackward(
      kernels::DistillationForwardBackward{.in = inputs,
                                           .d_divergence = static_cast<float>(loss_scale * teaching.kd_ratio),
                                           .d_nll = static_cast<float>(loss_scale * (1.0 - teaching.kd_ratio)),
                                           .divergence = divergence_.Rows(0, tokens_),
                                           .log_prob = log_prob_.Rows(0, tokens_),
                                           .dhidden = hidden_.Rows(0, tokens_),
                                           .dweight = dweight.Rows(0, vocabulary),
                                           .accumulate_dweight = !overwrites},
      stream_));
  RETURN_IF_ERROR(AddDistillationLoss(teaching));
  return RunBackward(context, use);
}

}  // namespace sluice::engine
