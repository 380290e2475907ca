// Which bytes and tokens of a rendered conversation the model is trained on: what the assistant says, with the mark
// that ends its turn, and nothing else (no role header, no line break after the mark).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine {

struct SupervisedChat {
  std::string text;              // the rendering of the whole conversation
  std::vector<Span> supervised;  // byte ranges of `text`, in order, not overlapping; may be empty
};

// Renders the whole conversation once and finds the assistant's turns in it.
//
// Where the template has {% generation %} blocks, they say it. Otherwise turn by turn: for an assistant message i, the
// rendering of messages[:i] with the generation prompt and that of messages[:i+1] bound the turn. Where these are not
// prefixes of the whole rendering (templates that drop the thinking of earlier turns), the turn is found by rendering
// the conversation once more with a marker as the turn's content: what is before and after the marker's turn is the
// same text as in the whole rendering. The text is always that of the whole rendering.
//
// `options.add_generation_prompt` must be false. kInvalidArgument names the message whose turn cannot be found and says
// to add {% generation %} to the template; errors of the template pass through.
absl::StatusOr<SupervisedChat> RenderSupervised(const ChatTemplate& chat_template, const jinja::Value& messages,
                                                const RenderOptions& options);

// 1 for each token whose bytes overlap a span, else 0. `tokens`: the byte range of each token in the text, in order, as
// Tokenizer::EncodeWithOffsets gives them; a token without bytes gets 0. `spans`: in order, not overlapping. Pure.
std::vector<uint8_t> MaskFromSpans(absl::Span<const TextRange> tokens, const std::vector<Span>& spans);

}  // namespace sluice::engine
