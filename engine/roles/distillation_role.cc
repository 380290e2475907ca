#include "engine/roles/distillation_role.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "engine/device/device_memory.h"
#include "engine/model/flops.h"

namespace sluice::engine {

absl::Status DistillationRole::OpenRest() {
  if (!has_data()) return absl::OkStatus();
  ASSIGN_OR_RETURN(teacher_, OpenReferenceModel(spec_, *encoder_, device_, model_options()));
  const int64_t vocabulary = std::min(parameters_->config().vocab_size, teacher_.parameters->config().vocab_size);
  const int64_t top_k = spec_.distillation().top_k();
  if (top_k <= vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("distillation.top_k: ", top_k, " of the ", vocabulary,
                                                 " tokens that both models have; 0 takes all"));
}

absl::StatusOr<Teaching> DistillationRole::Teach(const MicroBatch& batch) {
  const v1::DistillationSpec& spec = spec_.distillation();
  Teaching teaching;
  ASSIGN_OR_RETURN(teaching.hidden, teacher_.model->HiddenStates(batch));
  teaching.head = teacher_.parameters->weights().head;
  teaching.divergence = spec.loss() == "reverse_kl" ? kernels::Divergence::kReverseKl : kernels::Divergence::kForwardKl;
  teaching.top_k = spec.top_k();
  teaching.temperature = static_cast<float>(spec.temperature());
  teaching.kd_ratio = spec.kd_ratio();
  return teaching;
}

absl::Status DistillationRole::ForwardOn(const MicroBatch& batch) {
  ASSIGN_OR_RETURN(const Teaching teaching, Teach(batch));
  return model_->Forward(batch, teaching);
}

absl::Status DistillationRole::ForwardBackwardOn(const MicroBatch& batch, double loss_scale, GradientUse use) {
  ASSIGN_OR_RETURN(const Teaching teaching, Teach(batch));
  return model_->ForwardBackward(batch, teaching, loss_scale, use);
}

absl::StatusOr<std::map<std::string, double>> DistillationRole::FurtherNumbers(int64_t scored_tokens) {
  std::vector<double> sums(2, 0.0);
  RETURN_IF_ERROR(CopyTensor(model_->distillation_sums(), kernels::TensorView(sums.data(), {2})));
  RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(sums)));
  const auto tokens = static_cast<double>(scored_tokens);
  return std::map<std::string, double>{{"distillation/divergence", sums[0] / tokens},
                                       {"distillation/nll", sums[1] / tokens}};
}

double DistillationRole::FurtherFlops(double tokens, double sum_of_squared_lengths) const {
  return TrainingFlops(teacher_.parameters->config(), tokens, sum_of_squared_lengths) / 3;
}

}  // namespace sluice::engine
