// Deals the answers of a step to the ranks anew, so that each computes about as much in every mini-batch
// (trainer.balance_batch). What is computed of an answer does not depend on its rank: only sums over ranks are rounded
// otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"
#include "engine/data/prompt_dataset.h"
#include "engine/model/model_config.h"
#include "engine/roles/answer_batch.h"
#include "engine/roles/metric_sums.h"

namespace sluice::engine {

struct AnswerBalanceOptions {
  bool move = true;                               // false: only measure
  bool keep_groups = true;                        // the answers to one prompt stay together: estimators compare them
  absl::Span<const int64_t> mini_batch_of_place;  // the update that learns from a prompt's answers, from 0
  const ModelConfig* model;  // an answer costs the FLOPs of its forward (flops.h): its tokens, and attention's share
};

// Answers `answers` and, with their groups, `baselines` (of remax; else empty) of all ranks; afterwards those of this
// rank are ordered by (place, sample), and their prompts are those of `prompts`. Adds to `metrics`, of this rank's
// part,
//   global_seqlen/min, max, minmax_diff, mean          tokens of a rank before
//   global_seqlen/balanced_min, balanced_max           and after
//   global_seqlen/imbalance                            the heaviest rank's cost over the mean, of the worst mini-batch,
//                                                      after
// Collective. A world of one does nothing but count.
absl::Status BalanceAnswers(const AnswerBalanceOptions& options, const PromptDataset& prompts,
                            std::vector<Answer>* answers, std::vector<Answer>* baselines, Communicator& communicator,
                            MetricSums* metrics);

}  // namespace sluice::engine
