#include "common/config/frequency.h"

#include "absl/strings/str_cat.h"
#include "common/config/scalar.h"

namespace sluice {

absl::StatusOr<Frequency> ParseFrequency(const std::string& text) {
  if (text == "after_each_epoch") return Frequency{Frequency::Kind::kEachEpoch, 0};
  const auto steps = ParseInteger(text);
  if (steps.ok() && *steps == -1) return Frequency{Frequency::Kind::kAtEnd, 0};
  if (steps.ok() && *steps > 0) return Frequency{Frequency::Kind::kEverySteps, *steps};
  return absl::InvalidArgumentError(
      absl::StrCat("expected a number of steps above 0, -1 (only at the end) or after_each_epoch, got ", Quoted(text)));
}

bool IsDue(const Frequency& frequency, int64_t step, int64_t total_steps, int64_t steps_per_epoch) {
  if (step == total_steps) return true;
  switch (frequency.kind) {
    case Frequency::Kind::kAtEnd:
      return false;
    case Frequency::Kind::kEverySteps:
      return step % frequency.steps == 0;
    case Frequency::Kind::kEachEpoch:
      return step % steps_per_epoch == 0;
  }
  return false;
}

}  // namespace sluice
