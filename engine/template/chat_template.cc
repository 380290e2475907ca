#include "engine/template/chat_template.h"

#include <utility>

#include "common/status_macros.h"
#include "engine/template/jinja/ast.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/globals.h"
#include "engine/template/jinja/interpreter.h"
#include "engine/template/jinja/parser.h"
#include "engine/template/jinja/runtime.h"

namespace sluice::engine {
namespace {

// The value of a variable before the template sets any; nullopt where it is undefined. Caller's variables come first,
// then what every rendering has, then the special tokens, then the functions.
std::optional<jinja::Value> FindVariable(const std::string& name, const jinja::Value& messages,
                                         const RenderOptions& options) {
  if (const auto found = options.variables.find(name); found != options.variables.end()) return found->second;
  if (name == "messages") return messages;
  if (name == "tools") return options.tools != nullptr ? *options.tools : jinja::Value::None();
  if (name == "documents") return jinja::Value::None();
  if (name == "add_generation_prompt") return jinja::Value::Bool(options.add_generation_prompt);
  if (const auto found = options.special_tokens.find(name); found != options.special_tokens.end()) {
    return jinja::Value::String(found->second);
  }
  return jinja::FindGlobal(name);
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::Program> program) : program_(std::move(program)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Compile(std::string_view source) {
  ASSIGN_OR_RETURN(std::unique_ptr<const jinja::Program> program, jinja::Parse(source));
  return std::unique_ptr<const ChatTemplate>(new ChatTemplate(std::move(program)));
}

bool ChatTemplate::has_generation_blocks() const { return program_->has_generation; }

absl::StatusOr<RenderedChat> ChatTemplate::Render(const jinja::Value& messages, const RenderOptions& options) const {
  jinja::Runtime runtime(options.limits, options.now, options.time_zone);
  const auto root = std::make_shared<jinja::Scope>(nullptr);
  for (size_t i = 0; i < program_->names.size(); ++i) {
    std::optional<jinja::Value> value = FindVariable(program_->names[i], messages, options);
    if (value.has_value()) root->Set(static_cast<jinja::NameId>(i), *std::move(value));
  }
  jinja::Interpreter interpreter(*program_, runtime);
  jinja::Output output;
  RETURN_IF_ERROR(interpreter.Run(root, &output));
  RenderedChat chat;
  chat.text = std::move(output.text);
  for (const auto& [begin, end] : interpreter.generation_spans()) chat.generation_spans.push_back({begin, end});
  chat.has_captured_generation = interpreter.has_captured_generation();
  return chat;
}

}  // namespace sluice::engine
