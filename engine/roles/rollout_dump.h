// The answers of a step as a Parquet file, to look at: one row an answer.
//
//   step, place (of its prompt in the step; -1: its group was left out), sample, row, data_source, prompt, response,
//   ground_truth, response_tokens, truncated, weight_version, score (null: the reward failed), advantage (mean over the
//   answer's tokens), learned
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/data/prompt_dataset.h"
#include "engine/roles/answer_batch.h"

namespace sluice::engine {

// Writes `folder`/step_N.rank_R.parquet, whole or not at all; the folder is made. ResourceExhausted: the disk is full.
absl::Status DumpRollout(const std::string& folder, int64_t step, int rank, const PromptDataset& prompts,
                         absl::Span<const Answer* const> answers);

}  // namespace sluice::engine
