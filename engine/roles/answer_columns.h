// What a stage made of the answers, as a record batch for the engines of other pools: a row for each answer, by its
// place and number, and a column for each thing that was made. The numbers of the stage for the step's metrics travel
// in the schema's metadata, and so do the prompts that a filter chose.
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

// Whether results of this op can go to another pool: generate, reward, filter, ref_logprob.
bool HasColumns(const std::string& op);

// What a batch says beside its columns.
struct ColumnsOrigin {
  std::string op;
  MetricSums metrics;
  // filter: the rows of the prompts that the step goes on with, by place, of all ranks; and how many batches of
  // prompts it took for them.
  std::vector<int64_t> prompt_rows;
  int64_t prompt_batches = 0;
};

// REQUIRES: HasColumns(origin.op). `baselines`: the most likely answers of remax, or none.
absl::StatusOr<std::shared_ptr<arrow::RecordBatch>> ColumnsOf(const ColumnsOrigin& origin,
                                                              absl::Span<const Answer> answers,
                                                              absl::Span<const Answer> baselines);

// Of a batch of ColumnsOf; empty where it is not one.
std::string OpOf(const arrow::RecordBatch& batch);

// Puts the columns of a batch into the answers. Those of `generate`, and of `filter`, which has all that was made
// before it, are new answers, kept in the order of their place and number; `prompts` has their prompts and outlives
// them. Internal: the batch is not one of ColumnsOf, or is of answers that are not here.
absl::StatusOr<ColumnsOrigin> TakeColumns(const arrow::RecordBatch& batch, const PromptDataset& prompts,
                                          std::vector<Answer>* answers, std::vector<Answer>* baselines);

}  // namespace sluice::engine
