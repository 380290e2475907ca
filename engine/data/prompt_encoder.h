// From a conversation so far to the tokens that a model continues.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/formats.h"

namespace sluice::engine {

struct EncodedPrompt {
  std::vector<int32_t> ids;
  std::string text;  // what was tokenised: the rendering with the generation prompt, or the text itself
};

// Immutable; EncodePrompt is called from many threads at once.
class PromptEncoder {
 public:
  virtual ~PromptEncoder() = default;

  // A conversation is rendered with the generation prompt; a text (Sample::Kind::kText) gets what the tokenizer puts in
  // front of a text and no end. kInvalidArgument where the template refuses the conversation, or there is no template.
  virtual absl::StatusOr<EncodedPrompt> EncodePrompt(const Sample& sample) const = 0;

  // Whether a prompt that is a text becomes a user turn.
  virtual bool has_chat_template() const = 0;
};

}  // namespace sluice::engine
