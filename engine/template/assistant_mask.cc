#include "engine/template/assistant_mask.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine {
namespace {

using jinja::Value;

size_t CommonPrefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

bool IsBlank(std::string_view text) { return jinja::Strip(text, jinja::StripSide::kBoth).empty(); }

// How much of `text` is the turn's header, given the generation prompt, which begins as the header does but may go on
// with what this turn does not have (an empty thinking block). Where they part, the header ends behind the last mark or
// white space that they share.
size_t HeaderLength(std::string_view text, std::string_view prompt) {
  const size_t common = CommonPrefix(text, prompt);
  if (common == prompt.size()) return common;
  const size_t last = prompt.substr(0, common).find_last_of(" \n\t>]:");
  return last == std::string_view::npos ? 0 : last + 1;
}

// The message with `marker` as its text, in the shape that its content has.
Value WithMarker(const Value& message, const std::string& marker) {
  Value content = Value::String(marker);
  if (message.Field("content").is_list()) {
    content = Value::List({Value::DictOf({{"type", Value::String("text")}, {"text", content}})});
  }
  jinja::Dict changed = message.dict();
  changed.Set("content", std::move(content));
  return Value::FromDict(std::move(changed));
}

// Finds the assistant's turns in the rendering of a conversation by rendering parts and variants of it.
class TurnFinder {
 public:
  TurnFinder(const ChatTemplate& chat_template, const Value& messages, const RenderOptions& options,
             std::string_view full)
      : template_(chat_template), messages_(messages.items()), options_(options), full_(full) {}

  // The turn of message i, with its end mark and what white space follows. kInvalidArgument says what is not as it
  // must.
  absl::StatusOr<Span> Find(size_t i) {
    if (const std::optional<Span> span = FindByPrefixes(i); span.has_value()) return *span;
    return FindByMarker(i);
  }

 private:
  // The first `count` messages; nullopt where the template refuses them.
  const std::optional<std::string>& Prefix(size_t count, bool with_prompt) {
    const auto [found, is_new] = prefixes_.try_emplace({count, with_prompt});
    if (is_new) {
      if (count == messages_.size() && !with_prompt) {
        found->second = std::string(full_);
      } else {
        found->second =
            Render({messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(count)}, with_prompt);
      }
    }
    return found->second;
  }

  std::optional<std::string> Render(std::vector<Value> messages, bool with_prompt) const {
    RenderOptions options = options_;
    options.add_generation_prompt = with_prompt;
    absl::StatusOr<RenderedChat> chat = template_.Render(Value::List(std::move(messages)), options);
    if (!chat.ok()) return std::nullopt;
    return std::move(chat->text);
  }

  // What the generation prompt adds behind the first i messages; empty where it adds nothing or cannot be seen.
  std::string Prompt(size_t i) {
    const std::optional<std::string>& without = Prefix(i, false);
    const std::optional<std::string>& with = Prefix(i, true);
    if (!without.has_value() || !with.has_value() || !with->starts_with(*without)) return "";
    return with->substr(without->size());
  }

  // Where what comes before the turn, and the turn itself, are rendered as in the whole conversation.
  std::optional<Span> FindByPrefixes(size_t i) {
    const std::optional<std::string>& before = Prefix(i, false);
    const std::optional<std::string>& through = Prefix(i + 1, false);
    const std::string prompt = Prompt(i);
    if (prompt.empty() || !before.has_value() || !through.has_value()) return std::nullopt;
    if (!full_.starts_with(*through) || !through->starts_with(*before)) return std::nullopt;
    const size_t header = HeaderLength(std::string_view(*through).substr(before->size()), prompt);
    if (header == 0) return std::nullopt;
    return Span{before->size() + header, through->size()};
  }

  std::string MakeMarker() const {
    std::string marker = "SluiceTurnMarker";
    while (full_.find(marker) != std::string_view::npos) marker.push_back('X');
    return marker;
  }

  // Renders the conversation with a marker as the turn's text. The text behind the marker's turn must end the whole
  // rendering, and the text before it must begin it; between them is the turn.
  absl::StatusOr<Span> FindByMarker(size_t i) {
    const std::string marker = MakeMarker();
    std::vector<Value> marked = messages_;
    marked[i] = WithMarker(messages_[i], marker);
    const std::optional<std::string> whole = Render(marked, false);
    marked.resize(i + 1);
    const std::optional<std::string> through = i + 1 == messages_.size() ? whole : Render(marked, false);
    if (!whole.has_value() || !through.has_value()) {
      return absl::InvalidArgumentError("the template refuses a part of the conversation");
    }
    const size_t place = whole->find(marker);
    const size_t place_through = through->find(marker);
    if (place == std::string::npos || place_through == std::string::npos ||
        whole->find(marker, place + 1) != std::string::npos) {
      return absl::InvalidArgumentError("the template does not write the turn's content as one piece");
    }
    const std::string_view tail = std::string_view(*whole).substr(place + marker.size());
    const std::string_view end_mark = std::string_view(*through).substr(place_through + marker.size());
    const size_t end_size = CommonPrefix(tail, end_mark);
    if (!IsBlank(end_mark.substr(end_size)) || !full_.ends_with(tail.substr(end_size))) {
      return absl::InvalidArgumentError("what follows the turn depends on its content");
    }
    const size_t begin =
        TurnBegin(i, std::string_view(*whole).substr(0, place), std::string_view(*through).substr(0, place_through));
    const size_t end = full_.size() - (tail.size() - end_size);
    if (begin > end || full_.substr(0, begin) != std::string_view(*whole).substr(0, begin)) {
      return absl::InvalidArgumentError("what precedes the turn depends on its content");
    }
    return Span{begin, end};
  }

  // Where the turn begins, behind its header. What a template writes between header and content (an empty thinking
  // block) belongs to the turn. `head` is the whole conversation up to the marker; `last_head` is the same with the
  // marked message as the last one.
  size_t TurnBegin(size_t i, std::string_view head, std::string_view last_head) {
    const std::string prompt = Prompt(i);
    if (prompt.empty()) return head.size();
    const std::string& before = *Prefix(i, false);  // there, or there were no prompt
    if (head.starts_with(before)) {
      const size_t header = HeaderLength(head.substr(before.size()), prompt);
      return header == 0 ? head.size() : before.size() + header;
    }
    // Earlier turns look different now. The header is no farther from the marker than the turn's first byte is when the
    // turn is the last one.
    const size_t turn_size = std::min(head.size(), last_head.size() - CommonPrefix(last_head, before));
    const size_t turn_begin = head.size() - turn_size;
    const size_t header = head.substr(turn_begin).rfind(prompt);
    return header == std::string_view::npos ? head.size() : turn_begin + header + prompt.size();
  }

  const ChatTemplate& template_;
  const std::vector<Value>& messages_;
  const RenderOptions& options_;
  const std::string_view full_;
  std::map<std::pair<size_t, bool>, std::optional<std::string>> prefixes_;
};

// Drops the white space behind the end mark: the model stops at the mark. Where there is no mark, white space that is
// the content's own stays.
Span TrimEnd(std::string_view full, Span span, const Value& content) {
  const std::string_view turn = full.substr(span.begin, span.end - span.begin);
  const std::string_view core = jinja::Strip(turn, jinja::StripSide::kRight);
  size_t size = core.size();
  if (content.is_string()) {
    const std::string_view text = content.string();
    const std::string_view text_core = jinja::Strip(text, jinja::StripSide::kRight);
    const std::string_view text_space = text.substr(text_core.size());
    if (core.ends_with(text_core) && turn.substr(core.size()).starts_with(text_space)) size += text_space.size();
  }
  return {span.begin, span.begin + size};
}

absl::StatusOr<std::vector<Span>> SpansByTurns(const ChatTemplate& chat_template, const Value& messages,
                                               const RenderOptions& options, std::string_view full) {
  std::vector<Span> spans;
  if (!messages.is_list()) return spans;
  TurnFinder finder(chat_template, messages, options, full);
  for (size_t i = 0; i < messages.items().size(); ++i) {
    const Value& message = messages.items()[i];
    const Value role = message.Field("role");
    if (!role.is_string() || role.string() != "assistant") continue;
    absl::StatusOr<Span> span = finder.Find(i);
    if (span.ok() && !spans.empty() && span->begin < spans.back().end) {
      span = absl::InvalidArgumentError("it overlaps the turn before");
    }
    if (!span.ok()) {
      return absl::InvalidArgumentError(jinja::Join(
          "messages[", std::to_string(i), "]: the assistant's turn cannot be told apart in the rendered conversation: ",
          std::string(span.status().message()),
          ". Put {% generation %} and {% endgeneration %} around what the assistant says in the chat template"));
    }
    const Span trimmed = TrimEnd(full, *span, message.Field("content"));
    if (trimmed.begin < trimmed.end) spans.push_back(trimmed);
  }
  return spans;
}

// In order, without empty ones, and nested ones made one.
std::vector<Span> Normalize(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> merged;
  for (const Span& span : spans) {
    if (span.begin == span.end) continue;
    if (!merged.empty() && span.begin < merged.back().end) {
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

}  // namespace

absl::StatusOr<SupervisedChat> RenderSupervised(const ChatTemplate& chat_template, const Value& messages,
                                                const RenderOptions& options) {
  if (options.add_generation_prompt) {
    return absl::InvalidArgumentError("a conversation to train on ends with its last message, not with a prompt");
  }
  ASSIGN_OR_RETURN(RenderedChat chat, chat_template.Render(messages, options));
  SupervisedChat supervised;
  if (chat_template.has_generation_blocks()) {
    if (chat.has_captured_generation) {
      return absl::InvalidArgumentError(
          "the chat template has a {% generation %} block inside a macro, call, filter or set block; its place in the "
          "text is not known there. Move it to where the text is written");
    }
    supervised.supervised = Normalize(std::move(chat.generation_spans));
  } else {
    ASSIGN_OR_RETURN(supervised.supervised, SpansByTurns(chat_template, messages, options, chat.text));
  }
  supervised.text = std::move(chat.text);
  return supervised;
}

std::vector<uint8_t> MaskFromSpans(absl::Span<const TextRange> tokens, const std::vector<Span>& spans) {
  std::vector<uint8_t> mask(tokens.size(), 0);
  size_t next = 0;  // the first span that does not end before the token
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto begin = static_cast<size_t>(tokens[i].begin);
    const auto end = static_cast<size_t>(tokens[i].end);
    while (next < spans.size() && spans[next].end <= begin) ++next;
    mask[i] = begin < end && next < spans.size() && spans[next].begin < end && spans[next].begin < spans[next].end;
  }
  return mask;
}

}  // namespace sluice::engine
