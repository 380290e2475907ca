// From a prompt with responses to token sequences with the response marked.
//
// A conversation's ids are those of its whole rendering; marked are the response's assistant turns with their end
// marks. Two texts are tokenised as one, with what the tokenizer puts in front and the end-of-sequence behind; marked
// are the response and the end. Where a model has a chat template, two texts are a user and an assistant turn.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/data/chat_row_encoder.h"
#include "engine/data/preference_rows.h"
#include "engine/data/row_encoder.h"
#include "engine/data/truncation.h"

namespace sluice::engine {

struct EncodedPair {
  EncodedRow chosen;
  EncodedRow rejected;
  // How many tokens the two begin with in common, all of them the prompt's: the part that need be computed only once.
  int64_t prompt_tokens = 0;
};

struct EncodedCompletion {
  EncodedRow row;
  int64_t prompt_tokens = 0;  // those that the prompt alone has at its beginning too, the generation prompt included
};

// kInvalidArgument: the template refuses the conversation, a response without tokens, no end-of-sequence for texts.
absl::StatusOr<EncodedPair> EncodePair(const ChatRowEncoder& encoder, const PreferenceSample& sample);
absl::StatusOr<EncodedCompletion> EncodeCompletion(const ChatRowEncoder& encoder, const LabelledSample& sample);

// Shortens the sequences to max_length and returns whether that was needed. kLeft cuts the prompt's start, equally for
// both of a pair, and what is still too long at its end; kRight cuts the end; kMiddle is no way to cut these.
// kInvalidArgument for kError and a longer sequence (says both lengths), and for kMiddle.
absl::StatusOr<bool> TruncatePair(Truncation truncation, int64_t max_length, EncodedPair* pair);
absl::StatusOr<bool> TruncateCompletion(Truncation truncation, int64_t max_length, EncodedCompletion* completion);

// The prompt of one with the response of another, token by token: the unrelated pair from which KTO estimates its KL
// term (Ethayarajh et al. 2024, section 4.1), as `trl` forms it.
EncodedRow WithResponseOf(const EncodedCompletion& prompt_of, const EncodedCompletion& response_of);

}  // namespace sluice::engine
