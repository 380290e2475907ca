// What a stage made of the answers, as a record batch for the engines of other pools: a row for each answer, by its
// place and number, and a column for each thing that was made. The numbers of the stage for the step's metrics travel
// in the schema's metadata.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/data/prompt_dataset.h"
#include "engine/roles/answer_batch.h"
#include "engine/roles/metric_sums.h"

namespace arrow {
class RecordBatch;
}

namespace sluice::engine {

// Whether results of this op can go to another pool: generate, reward, ref_logprob.
bool HasColumns(const std::string& op);

// REQUIRES: HasColumns(op). `baselines`: the most likely answers of remax, or none.
absl::StatusOr<std::shared_ptr<arrow::RecordBatch>> ColumnsOf(const std::string& op, absl::Span<const Answer> answers,
                                                              absl::Span<const Answer> baselines,
                                                              const MetricSums& metrics);

// What a batch says beside its columns.
struct ColumnsOrigin {
  std::string op;
  MetricSums metrics;
};

// Puts the columns of a batch into the answers. Those of `generate` are new answers, kept in the order of their place
// and number; `prompts` has their prompts and outlives them. Internal: the batch is not one of ColumnsOf, or is of
// answers that are not here.
absl::StatusOr<ColumnsOrigin> TakeColumns(const arrow::RecordBatch& batch, const PromptDataset& prompts,
                                          std::vector<Answer>* answers, std::vector<Answer>* baselines);

}  // namespace sluice::engine
