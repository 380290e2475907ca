// Everything of a training run that is not a tensor and that the next step depends on. Saved as one JSON file in each
// checkpoint; a run that continues from it must take the same steps as one that never stopped, so nothing here may be
// left out or recomputed from defaults.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace sluice::engine {

inline constexpr char kTrainingStateName[] = "training_state.json";

// Where in the data the next step starts. The order of an epoch is a pure function of (seed, epoch).
struct DataCursor {
  int64_t epoch = 0;  // from 0
  int64_t samples_into_epoch =
      0;  // samples of this epoch's order used so far; equal to the epoch's size at its very end
  uint64_t permutation_seed = 0;
  std::string data_fingerprint;  // of the tokenised data set: other data under the same cursor would be another run

  bool operator==(const DataCursor&) const = default;
};

// Of the schedule, and the values the last step really used.
struct ScheduleState {
  int64_t next_update = 0;  // index that the schedule's next evaluation gets
  double learning_rate = 0;
  double weight_decay = 0;

  bool operator==(const ScheduleState&) const = default;
};

// Philox: the key, and the counter that the next draw takes.
struct RandomState {
  uint64_t seed = 0;
  uint64_t counter = 0;

  bool operator==(const RandomState&) const = default;
};

struct TrainingCounters {
  int64_t samples = 0;          // trained on, over all ranks
  int64_t tokens = 0;           // trained on, padding excluded
  int64_t loss_tokens = 0;      // with a loss of weight above 0
  int64_t skipped_updates = 0;  // because of NaN or infinity
  int64_t skipped_in_a_row = 0;
  int64_t optimizer_updates = 0;  // applied; the exponent of AdamW's bias correction

  bool operator==(const TrainingCounters&) const = default;
};

struct TrainingState {
  int64_t step = 0;  // steps done, skipped ones included
  DataCursor data;
  ScheduleState schedule;
  RandomState random;
  TrainingCounters counters;
  std::map<std::string, std::string> extra;  // of the caller: recipe state that has no field here

  bool operator==(const TrainingState&) const = default;
};

// Text of one JSON object; floating-point values read back bit-equal. InvalidArgument: NaN or infinity, or text that is
// not UTF-8.
absl::StatusOr<std::string> SerializeTrainingState(const TrainingState& state);

// DataLoss: a field is missing, unknown, or of another type (named by its path); a state is never partly restored.
absl::StatusOr<TrainingState> ParseTrainingState(const std::string& text);

}  // namespace sluice::engine
