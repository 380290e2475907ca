// ChatRowEncoder as a PromptEncoder.
#include <utility>

#include "common/status_macros.h"
#include "engine/data/chat_row_encoder.h"
#include "engine/template/tool_arguments.h"

namespace sluice::engine {

absl::StatusOr<EncodedPrompt> ChatRowEncoder::EncodePrompt(const Sample& sample) const {
  EncodedPrompt prompt;
  if (sample.kind == Sample::Kind::kText) {
    prompt.text = sample.text;
    prompt.ids = tokenizer_->Encode(prompt.text, {.add_special_tokens = true});
    return prompt;
  }
  ASSIGN_OR_RETURN(RenderOptions options, OptionsFor(sample));
  options.add_generation_prompt = true;
  ASSIGN_OR_RETURN(const jinja::Value messages, ParseToolArguments(sample.messages));
  ASSIGN_OR_RETURN(RenderedChat chat, TemplateFor(sample).Render(messages, options));
  prompt.text = std::move(chat.text);
  prompt.ids = tokenizer_->Encode(prompt.text);  // the template writes the special tokens itself
  return prompt;
}

}  // namespace sluice::engine
