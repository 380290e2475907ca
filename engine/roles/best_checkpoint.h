// The best checkpoint of a run, by a number of its validations: checkpoint.best_metric, best_mode.
//
// A checkpoint's manifest has the numbers of the validation of its step, so that the folder alone says which is the
// best, also to a run that resumes, and also where best_metric is another one than before.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "sluice/v1/engine.pb.h"
#include "sluice/v1/job.pb.h"
#include "sluice/v1/types.pb.h"

namespace sluice::engine {

struct BestMetric {
  std::string name;  // as in metrics.jsonl; empty: checkpoints are not compared
  bool larger_is_better = true;
};
BestMetric BestMetricOf(const v1::CheckpointSpec& spec);

// The number of this name; none where the validation has it not, or it is not finite.
std::optional<double> ValueOf(const std::string& name, const v1::ValidationMetrics& validation);

// The names it has, separated by commas; for messages.
std::string NamesOf(const v1::ValidationMetrics& validation);

// Metadata for the manifest of a checkpoint of `recipe`; `validation` is of its step, or null.
std::string CheckpointMetadata(const std::string& recipe, const v1::ValidationMetrics* validation);

// For CheckpointStoreOptions; null where the metric has no name.
CheckpointMerit MeritBy(const BestMetric& metric);

// The best of the store, with its number; none where no checkpoint has one.
absl::StatusOr<std::optional<v1::BestCheckpoint>> FindBest(const CheckpointStore& store, const BestMetric& metric);

// Whether `value` is better than that of `best`, or there is none.
bool IsBetter(const BestMetric& metric, double value, const std::optional<v1::BestCheckpoint>& best);

}  // namespace sluice::engine
