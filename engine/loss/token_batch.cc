#include "engine/loss/token_batch.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"

namespace sluice::engine {

int64_t CountedTokens(const TokenBatch& batch, const Sequence& sequence) {
  if (batch.mask.empty()) return sequence.end - sequence.begin;
  int64_t counted = 0;
  for (int64_t token = sequence.begin; token < sequence.end; ++token) counted += batch.Counts(token);
  return counted;
}

absl::Status Validate(const TokenBatch& batch) {
  if (batch.tokens < 0) return absl::InvalidArgumentError("token batch: a negative number of tokens");
  if (!batch.mask.empty()) {
    if (absl::Status status = CheckLength(batch, batch.mask.size(), "mask"); !status.ok()) return status;
  }
  std::vector<Sequence> sorted(batch.sequences.begin(), batch.sequences.end());
  std::sort(sorted.begin(), sorted.end(), [](const Sequence& a, const Sequence& b) { return a.begin < b.begin; });
  int64_t previous_end = 0;
  for (const Sequence& sequence : sorted) {
    if (sequence.begin < previous_end || sequence.end < sequence.begin || sequence.end > batch.tokens) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "token batch: sequence [%d, %d) of sample %d overlaps another or leaves the %d tokens of the batch",
          sequence.begin, sequence.end, sequence.sample, batch.tokens));
    }
    previous_end = sequence.end;
  }
  return absl::OkStatus();
}

absl::Status CheckLength(const TokenBatch& batch, size_t size, absl::string_view array) {
  if (size == static_cast<size_t>(batch.tokens)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has %d elements, the batch has %d tokens", array, size, batch.tokens));
}

}  // namespace sluice::engine
