#include "engine/template/tool_arguments.h"

#include <string>
#include <vector>

#include "common/status.h"
#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/json.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine {
namespace {

using jinja::Dict;
using jinja::Value;

// The dict with one field replaced.
Value WithField(const Value& dict, const std::string& name, Value value) {
  Dict changed = dict.dict();
  changed.Set(name, std::move(value));
  return Value::FromDict(std::move(changed));
}

absl::StatusOr<Value> ParseArguments(const std::string& text) {
  if (jinja::Strip(text, jinja::StripSide::kBoth).empty()) return Value::FromDict(Dict());
  ASSIGN_OR_RETURN(Value arguments, jinja::ParseJson(text));
  if (!arguments.is_dict()) {
    return absl::InvalidArgumentError("expected a JSON object, got " + jinja::TypeName(arguments));
  }
  return arguments;
}

// A call is {"function": {"arguments": ...}} or, unwrapped, {"arguments": ...}.
absl::StatusOr<Value> ParseCall(const Value& call) {
  if (call.Field("function").is_dict()) {
    ASSIGN_OR_RETURN(Value function, ParseCall(call.Field("function")));
    return WithField(call, "function", std::move(function));
  }
  const Value arguments = call.Field("arguments");
  if (!arguments.is_string()) return call;
  absl::StatusOr<Value> parsed = ParseArguments(arguments.string());
  if (!parsed.ok()) return Annotate(parsed.status(), "arguments");
  return WithField(call, "arguments", *std::move(parsed));
}

}  // namespace

absl::StatusOr<Value> ParseToolArguments(const Value& messages) {
  if (!messages.is_list()) return messages;
  std::vector<Value> changed;
  for (size_t i = 0; i < messages.items().size(); ++i) {
    const Value& message = messages.items()[i];
    const Value calls = message.Field("tool_calls");
    if (!calls.is_list()) {
      changed.push_back(message);
      continue;
    }
    std::vector<Value> changed_calls;
    for (size_t j = 0; j < calls.items().size(); ++j) {
      absl::StatusOr<Value> call = ParseCall(calls.items()[j]);
      if (!call.ok()) {
        return Annotate(call.status(),
                        jinja::Join("messages[", std::to_string(i), "].tool_calls[", std::to_string(j), "]"));
      }
      changed_calls.push_back(*std::move(call));
    }
    changed.push_back(WithField(message, "tool_calls", Value::List(std::move(changed_calls))));
  }
  return Value::List(std::move(changed));
}

}  // namespace sluice::engine
