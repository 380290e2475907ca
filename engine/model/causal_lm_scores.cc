// CausalLm: log-probabilities and entropies of the labels, and losses of them.

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/device/device_memory.h"
#include "engine/model/causal_lm.h"
#include "kernels/flat/flat.h"

namespace sluice::engine {

using kernels::ConstTensorView;
using kernels::TensorView;

absl::StatusOr<TokenScores> CausalLm::ScoreForwarded(const TokenScoring& scoring) {
  kernels::CrossEntropyInputs inputs = HeadInputs();
  inputs.temperature = scoring.temperature;
  const TensorView entropy = scoring.entropy ? entropy_.Rows(0, tokens_) : TensorView::Empty();
  RETURN_IF_ERROR(kernels::Forward(kernels::CrossEntropyForward{.in = inputs,
                                                                .log_prob = log_prob_.Rows(0, tokens_),
                                                                .logsumexp = logsumexp_.Rows(0, tokens_),
                                                                .entropy = entropy},
                                   stream_));
  TokenScores scores;
  ASSIGN_OR_RETURN(scores.log_prob, TokenLogProbs());
  if (!scoring.entropy) return scores;
  scores.entropy.resize(static_cast<size_t>(slots_), 0.0f);
  RETURN_IF_ERROR(CopyTensor(entropy, TensorView(scores.entropy.data(), {tokens_})));
  return scores;
}

absl::StatusOr<TokenScores> CausalLm::Score(const MicroBatch& batch, const TokenScoring& scoring) {
  if (!options_.token_losses) return absl::FailedPreconditionError("the model was created without token_losses");
  RETURN_IF_ERROR(RequireHead(/*value_head=*/false));
  RETURN_IF_ERROR(Upload(batch));
  if (tokens_ == 0) {
    const size_t slots = static_cast<size_t>(slots_);
    return TokenScores{std::vector<float>(slots), std::vector<float>(scoring.entropy ? slots : 0)};
  }
  const LayerContext context = Context(batch, GradientMode::kAccumulate);
  RETURN_IF_ERROR(RunForward(context));
  return ScoreForwarded(scoring);
}

absl::Status CausalLm::ForwardBackward(const MicroBatch& batch, const TokenScoring& scoring,
                                       absl::FunctionRef<absl::StatusOr<TokenGradients>(const TokenScores&)> loss,
                                       GradientUse use) {
  if (!options_.backward) return absl::FailedPreconditionError("the model was created without a backward");
  ASSIGN_OR_RETURN(const TokenScores scores, Score(batch, scoring));
  if (tokens_ == 0) return BackwardOfNothing(use);
  const bool overwrites = use.mode == GradientMode::kOverwrite;
  ASSIGN_OR_RETURN(TokenGradients gradients, loss(scores));
  const size_t slots = static_cast<size_t>(slots_);
  if (gradients.d_log_prob.size() != slots || (!gradients.d_entropy.empty() && gradients.d_entropy.size() != slots) ||
      (!gradients.d_entropy.empty() && !scoring.entropy)) {
    return absl::InvalidArgumentError(absl::StrCat("gradients of ", gradients.d_log_prob.size(),
                                                   " log-probabilities and ", gradients.d_entropy.size(),
                                                   " entropies for ", slots, " slots"));
  }
  // The head works with derivatives by -log p.
  for (float& value : gradients.d_log_prob) value = -value;
  const TensorView d_loss = loss_gradient_.Rows(0, tokens_);
  RETURN_IF_ERROR(CopyTensor(ConstTensorView(gradients.d_log_prob.data(), {tokens_}), d_loss));
  ConstTensorView d_entropy, entropy;
  if (!gradients.d_entropy.empty()) {
    const TensorView on_device = entropy_gradient_.Rows(0, tokens_);
    RETURN_IF_ERROR(CopyTensor(ConstTensorView(gradients.d_entropy.data(), {tokens_}), on_device));
    d_entropy = on_device;
    entropy = entropy_.Rows(0, tokens_);
  }
  const LayerContext context = Context(batch, use.mode);
  if (overwrites) RETURN_IF_ERROR(ClearOverwritten());
  kernels::CrossEntropyInputs inputs = HeadInputs();
  inputs.temperature = scoring.temperature;
  RETURN_IF_ERROR(kernels::Backward(kernels::CrossEntropyBackward{.in = inputs,
                                                                  .d_loss = d_loss,
                                                                  .d_entropy = d_entropy,
                                                                  .logsumexp = logsumexp_.Rows(0, tokens_),
                                                                  .entropy = entropy,
                                                                  .dhidden = hidden_.Rows(0, tokens_),
                                                                  .dweight = parameters_->gradient_weights().head,
                                                                  .accumulate_dweight = !overwrites},
                                    stream_));
  return RunBackward(context, use);
}

}  // namespace sluice::engine
