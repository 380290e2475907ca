#include "engine/roles/answer_update.h"

#include <vector>

#include "common/status_macros.h"

namespace sluice::engine {

absl::StatusOr<BatchTotals> CountOverRanks(absl::Span<const Answer> answers, absl::Span<const int32_t> chosen,
                                           double loss_scale_factor, Communicator& communicator) {
  std::vector<double> counts = {0, static_cast<double>(chosen.size())};
  for (const int32_t place : chosen) counts[0] += static_cast<double>(answers[place].response_tokens());
  RETURN_IF_ERROR(communicator.AllReduceSum(absl::MakeSpan(counts)));
  return BatchTotals{static_cast<int64_t>(counts[0]), static_cast<int64_t>(counts[1]), loss_scale_factor};
}

absl::Status AccumulateGradients(absl::Span<const Answer> answers, absl::Span<const int32_t> chosen,
                                 int64_t token_slots, Parameters& parameters,
                                 absl::FunctionRef<absl::Status(const PackedAnswers&, GradientMode)> backward) {
  ASSIGN_OR_RETURN(const std::vector<PackedAnswers> micro_batches, PackAnswers(answers, chosen, token_slots));
  if (micro_batches.empty()) return parameters.ZeroGradients();
  GradientMode mode = GradientMode::kOverwrite;
  for (const PackedAnswers& packed : micro_batches) {
    RETURN_IF_ERROR(backward(packed, mode));
    mode = GradientMode::kAccumulate;
  }
  return absl::OkStatus();
}

void UpdateCounts::Add(const OptimizerStepResult& applied) {
  ++updates;
  if (applied.skipped) {
    ++skipped;
  } else {
    grad_norm += applied.grad_norm;
  }
}

}  // namespace sluice::engine
