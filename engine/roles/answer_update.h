// An optimizer update on chosen answers, as every model that learns from them makes it: counts over all ranks, then
// gradients of one micro-batch after another.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/comm/communicator.h"
#include "engine/loss/aggregation.h"
#include "engine/model/causal_lm.h"
#include "engine/model/model_config.h"
#include "engine/optim/adamw_optimizer.h"
#include "engine/roles/answer_batch.h"

namespace sluice::engine {

// What answers[chosen] of all ranks are divided by: their counted tokens, and those of them that have any; no sequences
// where no rank has one. Collective.
absl::StatusOr<BatchTotals> CountOverRanks(absl::Span<const Answer> answers, absl::Span<const int32_t> chosen,
                                           double loss_scale_factor, Communicator& communicator);

// Model FLOPs of a forward and a backward over answers[chosen], or over all, each with its prompt; a forward alone is a
// third of it (flops.h).
double AnswerFlops(const ModelConfig& config, absl::Span<const Answer> answers, absl::Span<const int32_t> chosen);
double AnswerFlops(const ModelConfig& config, absl::Span<const Answer> answers);

// Replaces the gradients of `parameters` by those of answers[chosen], which `backward` adds up one micro-batch at a
// time; by zero where there are none. On this rank alone.
absl::Status AccumulateGradients(
    absl::Span<const Answer> answers, absl::Span<const int32_t> chosen, int64_t token_slots, Parameters& parameters,
    absl::FunctionRef<absl::Status(const PackedAnswers& packed, GradientMode mode)> backward);

// The updates of a step.
struct UpdateCounts {
  int64_t updates = 0;
  int64_t skipped = 0;   // gradients were not finite
  double grad_norm = 0;  // summed over those that were applied

  void Add(const OptimizerStepResult& applied);
  int64_t applied() const { return updates - skipped; }
  double MeanGradNorm() const { return grad_norm / static_cast<double>(applied()); }  // REQUIRES: applied() > 0
};

}  // namespace sluice::engine
