// Text of an answer as its tokens come, and the first stop string in it, also one that begins in one token and ends in
// another.
//
// The stop string that is complete first wins; of several that end with the same character the longest. Text from its
// first character on is not part of the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine {

struct StopMatcherOptions {
  DecodeOptions decode = {.skip_special_tokens = true};
  bool include_stop = false;  // the stop string stays in the text, which ends right behind it
};

// Not thread-safe. The tokenizer must outlive it.
class StopMatcher {
 public:
  // `prompt_ids` come before the answer and are not part of its text.
  StopMatcher(const Tokenizer& tokenizer, absl::Span<const int32_t> prompt_ids, std::vector<std::string> stop,
              const StopMatcherOptions& options = {});

  // Adds a token. True: a stop string is complete; nothing may be pushed behind it. With `armed` false the text is
  // added but no string that ends in it matches (min_new_tokens).
  bool Push(int32_t id, bool armed = true);

  // The answer ended for another reason: what the decoder held back is added. True: that completed a stop string.
  bool Finish(bool armed = true);

  // The answer's text so far; after a match, cut there.
  const std::string& text() const { return text_; }

  // The part of text() that no later token can take back.
  std::string_view safe_text() const;

  const std::optional<std::string>& matched() const { return matched_; }
  bool finished() const { return finished_; }  // by a match or by Finish

 private:
  bool Add(const std::string& piece, bool armed);

  IncrementalDecoder decoder_;
  std::vector<std::string> stop_;
  StopMatcherOptions options_;
  std::string text_;
  std::optional<std::string> matched_;
  bool finished_ = false;
};

}  // namespace sluice::engine
