// A model's chat template: Jinja source, compiled once, that turns messages into the text a model is trained on.
// Equal byte by byte to Python's jinja2 as `transformers` sets it up (trim_blocks, lstrip_blocks, immutable sandbox,
// loop controls, its tojson, raise_exception, strftime_now and the {% generation %} tag).
//
//   ASSIGN_OR_RETURN(auto chat_template, ChatTemplate::Compile(source));
//   ASSIGN_OR_RETURN(jinja::Value messages, jinja::ParseJson(R"([{"role": "user", "content": "hi"}])"));
//   ASSIGN_OR_RETURN(RenderedChat chat, chat_template->Render(messages, {.add_generation_prompt = true}));
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/template/jinja/limits.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine {

namespace jinja {
struct Program;
}

// A range of bytes [begin, end).
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const Span&) const = default;
};

struct RenderOptions {
  const jinja::Value* tools = nullptr;  // null: `tools` is None. Not owned; outlives the call.
  bool add_generation_prompt = false;
  // Further variables by name (enable_thinking, documents, ...). They win over the special tokens.
  std::map<std::string, jinja::Value> variables;
  // Special tokens by name ("bos_token", "eos_token", ...). A name that is absent is undefined in the template.
  std::map<std::string, std::string> special_tokens;
  // What strftime_now sees. Without it a template that asks for the date is an error, so that no rendering depends on
  // the day by accident.
  std::optional<absl::Time> now;
  absl::TimeZone time_zone = absl::UTCTimeZone();
  jinja::Limits limits;
};

struct RenderedChat {
  std::string text;
  // What {% generation %} blocks wrote, in order; byte ranges of `text`.
  std::vector<Span> generation_spans;
  // True where such a block ran inside a macro, {% call %}, {% filter %} or {% set %} block: its place in `text` is not
  // known, so `generation_spans` is not the whole truth.
  bool has_captured_generation = false;
};

// Immutable and safe to use from many threads at once.
class ChatTemplate {
 public:
  // kInvalidArgument "chat template line N: ..." for a syntax error or an unknown filter or test.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Compile(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // `messages` is a list of dicts. kInvalidArgument "chat template line N: ..." where jinja2 would raise, also for the
  // template's own raise_exception, and where a limit is exceeded.
  absl::StatusOr<RenderedChat> Render(const jinja::Value& messages, const RenderOptions& options) const;

  // The source has a {% generation %} block.
  bool has_generation_blocks() const;

 private:
  explicit ChatTemplate(std::unique_ptr<const jinja::Program> program);

  std::unique_ptr<const jinja::Program> program_;
};

}  // namespace sluice::engine
