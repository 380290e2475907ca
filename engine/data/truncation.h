// What happens to a row that is longer than the longest allowed one, and which rows are worth training on. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/row_encoder.h"

namespace sluice::engine {

enum class Truncation {
  kError,   // refuse the row
  kLeft,    // keep the last max_length tokens
  kRight,   // keep the first max_length tokens
  kMiddle,  // keep the first max_length / 2 and the last max_length - max_length / 2. The first token after the gap is
            // not scored: the token before it never stood before it in the text.
};

// From `error`, `left`, `right`, `middle`; kInvalidArgument names them.
absl::StatusOr<Truncation> ParseTruncation(std::string_view name);

// Shortens the row to max_length and returns whether that was needed. kInvalidArgument for kError and a longer row
// (says both lengths). REQUIRES: max_length >= 1, row.ids and row.mask of one length.
absl::StatusOr<bool> Truncate(Truncation truncation, int64_t max_length, EncodedRow* row);

// Tokens that add to the loss: the mask is 1 and there is a token before it to predict it from.
int64_t ScorableTokens(const uint8_t* mask, int64_t tokens);
inline int64_t ScorableTokens(const EncodedRow& row) {
  return ScorableTokens(row.mask.data(), static_cast<int64_t>(row.mask.size()));
}

}  // namespace sluice::engine
