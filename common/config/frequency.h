// When something recurring is due in a run: trainer.save_freq and trainer.test_freq.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

struct Frequency {
  enum class Kind { kAtEnd, kEverySteps, kEachEpoch };
  Kind kind = Kind::kAtEnd;
  int64_t steps = 0;  // kEverySteps: > 0
};

// "-1" (only at the end), a number of steps above 0, or "after_each_epoch". InvalidArgument: anything else.
absl::StatusOr<Frequency> ParseFrequency(const std::string& text);

// Whether it is due after update `step` (1-based). Always after the last one. Epochs end at multiples of
// `steps_per_epoch`, which is > 0.
bool IsDue(const Frequency& frequency, int64_t step, int64_t total_steps, int64_t steps_per_epoch);

}  // namespace sluice
