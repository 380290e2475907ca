#include "engine/roles/answer_update.h"

#include <vector>

#include "common/status_macros.h"
#include "engine/model/flops.h"

namespace sluice::engine {

absl::StatusOr<BatchTotals> CountOverRanks(absl::Span<const Answer> answers, absl::Span<const int32_t> chosen,
                                           double loss_scale_factor, Communicator& communicator) {
  std::vector<double> counts = {0, 0};
  for (const int32_t place : chosen) {
    const int64_t tokens = answers[place].counted_tokens();
    counts[0] += static_cast<double>(tokens);
    counts[1] += tokens > 0;
  }
  RETURN_IF_ERROR(communicator.AllReduceSum(absl::MakeSpan(counts)));
  return BatchTotals{static_cast<int64_t>(counts[0]), static_cast<int64_t>(counts[1]), loss_scale_factor};
}

double AnswerFlops(const ModelConfig& config, absl::Span<const Answer> answers, absl::Span<const int32_t> chosen) {
  std::vector<int64_t> lengths;
  for (const int32_t place : chosen) lengths.push_back(answers[static_cast<size_t>(place)].tokens());
  return TrainingFlops(config, lengths);
}

double AnswerFlops(const ModelConfig& config, absl::Span<const Answer> answers) {
  std::vector<int64_t> lengths;
  for (const Answer& answer : answers) lengths.push_back(answer.tokens());
  return TrainingFlops(config, lengths);
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
