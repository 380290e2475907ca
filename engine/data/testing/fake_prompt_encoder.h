// A prompt encoder for tests: one token per byte.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/data/prompt_encoder.h"

namespace sluice::engine {

// A chat is "<role>content" for each message, then "<assistant>"; a text is itself. The text "refuse" is an error.
class FakePromptEncoder : public PromptEncoder {
 public:
  absl::StatusOr<EncodedPrompt> EncodePrompt(const Sample& sample) const override {
    EncodedPrompt prompt;
    if (sample.kind == Sample::Kind::kText) {
      prompt.text = sample.text;
    } else {
      for (const jinja::Value& message : sample.messages.items()) {
        if (message.Field("content").string() == "refuse") return absl::InvalidArgumentError("refused");
        absl::StrAppend(&prompt.text, "<", message.Field("role").string(), ">", message.Field("content").string());
      }
      absl::StrAppend(&prompt.text, "<assistant>");
    }
    for (unsigned char byte : prompt.text) prompt.ids.push_back(byte);
    return prompt;
  }
  bool has_chat_template() const override { return has_template; }

  bool has_template = true;
};

}  // namespace sluice::engine
