// Distillation from a teacher's log-probabilities.
//
// On sampled tokens (the student's own responses, on-policy; 2306.13649): any estimator of kl_estimator.h between the
// student's and the teacher's log_prob of the sampled token, which estimates the reverse KL(student || teacher).
//
// On listed tokens (token level, the teacher's K most probable ids per position, or the whole vocabulary), with p the
// teacher's and q the student's probabilities, per position
//   forward_kl  sum over the list of p (log p - log q)                                              (1503.02531)
//   reverse_kl  sum over the list of q (log q - log p)                                              (2306.08543)
// and with `rest` one more term for all tokens not listed, p0 = 1 - sum p, q0 = 1 - sum q: then it is the KL divergence
// of the distributions that merge those, so never negative. reverse_kl needs it: without it, mass moved out of the list
// would count as progress.
//
// Derivatives are by the student's log-probabilities of the listed ids. A head that recomputes its logits turns them
// into dlogits[v] = sum_k d_log_prob[k] ([v == id[k]] - q[v]): its cross-entropy backward with K labels and d_loss =
// -d_log_prob. Sequence-level distillation is supervised fine-tuning on the teacher's responses (1606.07947) and needs
// nothing here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/loss/aggregation.h"
#include "engine/loss/kl_estimator.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

// Adds up over micro-batches and ranks.
struct DistillationMetrics {
  double loss = 0;
  WeightedSum kl;  // token mean
  // On listed tokens: the mass of the lists, token means.
  WeightedSum teacher_mass, student_mass;

  DistillationMetrics& operator+=(const DistillationMetrics& other) {
    loss += other.loss;
    kl += other.kl;
    teacher_mass += other.teacher_mass;
    student_mass += other.student_mass;
    return *this;
  }
};

struct SampledDistillationInputs {
  TokenBatch batch;
  std::span<const float> log_prob;          // [tokens]
  std::span<const float> teacher_log_prob;  // [tokens]
};

// d_log_prob: [tokens], overwritten with the derivative of the mini-batch's loss; 0 where no token counts.
// InvalidArgument: a bad batch, an array of another length.
absl::StatusOr<DistillationMetrics> SampledDistillation(KlType type, LossAggregation aggregation,
                                                        const SampledDistillationInputs& inputs,
                                                        const BatchTotals& totals, std::span<float> d_log_prob);

enum class DistillationLossType { kForwardKl, kReverseKl };

struct DistillationLossName {
  absl::string_view name;
  DistillationLossType type;
};
std::span<const DistillationLossName> DistillationLossNames();
std::optional<DistillationLossType> ParseDistillationLoss(absl::string_view name);

struct ListedDistillationOptions {
  DistillationLossType type = DistillationLossType::kForwardKl;
  bool rest = true;  // reverse_kl: must be
  LossAggregation aggregation = LossAggregation::kTokenMean;
};

struct ListedDistillationInputs {
  TokenBatch batch;
  int64_t listed = 0;                       // K >= 1
  std::span<const float> log_prob;          // [tokens, K] of the student for the listed ids
  std::span<const float> teacher_log_prob;  // [tokens, K]; -inf for an unused place of a list
};

// d_log_prob: [tokens, K], as above. InvalidArgument: bad options or batch, an array of another length.
absl::StatusOr<DistillationMetrics> ListedDistillation(const ListedDistillationOptions& options,
                                                       const ListedDistillationInputs& inputs,
                                                       const BatchTotals& totals, std::span<float> d_log_prob);

}  // namespace sluice::engine
