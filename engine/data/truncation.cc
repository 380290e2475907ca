#include "engine/data/truncation.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::engine {

absl::StatusOr<Truncation> ParseTruncation(std::string_view name) {
  if (name == "error") return Truncation::kError;
  if (name == "left") return Truncation::kLeft;
  if (name == "right") return Truncation::kRight;
  if (name == "middle") return Truncation::kMiddle;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown truncation \"", std::string(name), "\"; one of error, left, right, middle"));
}

absl::StatusOr<bool> Truncate(Truncation truncation, int64_t max_length, EncodedRow* row) {
  const int64_t length = static_cast<int64_t>(row->ids.size());
  if (length <= max_length) return false;
  int64_t head = 0;  // tokens kept at the start; the others are kept at the end
  switch (truncation) {
    case Truncation::kError:
      return absl::InvalidArgumentError(absl::StrCat("has ", length, " tokens, more than max_length ", max_length,
                                                     " (raise it, or set truncation to left, right or middle)"));
    case Truncation::kLeft:
      head = 0;
      break;
    case Truncation::kRight:
      head = max_length;
      break;
    case Truncation::kMiddle:
      head = max_length / 2;
      break;
  }
  const int64_t gap = length - max_length;
  row->ids.erase(row->ids.begin() + head, row->ids.begin() + head + gap);
  row->mask.erase(row->mask.begin() + head, row->mask.begin() + head + gap);
  if (truncation == Truncation::kMiddle && head < max_length) row->mask[head] = 0;
  return true;
}

int64_t ScorableTokens(const uint8_t* mask, int64_t tokens) {
  int64_t count = 0;
  for (int64_t t = 1; t < tokens; ++t) count += mask[t] != 0;
  return count;
}

}  // namespace sluice::engine
