#include "engine/data/messages.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using jinja::Value;

bool IsMissing(const Value& value) { return value.is_undefined() || value.is_none(); }

absl::StatusOr<Value> ListFrom(Value value, const std::string& column) {
  if (value.is_string()) {
    absl::StatusOr<Value> parsed = jinja::ParseJson(value.string());
    if (!parsed.ok()) return Annotate(parsed.status(), absl::StrCat("column \"", column, "\" holds text"));
    value = std::move(parsed).value();
  }
  if (!value.is_list()) {
    return absl::InvalidArgumentError(
        absl::StrCat("column \"", column, "\" has type ", jinja::TypeName(value), ", a list expected"));
  }
  return value;
}

absl::StatusOr<Value> MessageList(const Row& row, const std::string& column) {
  ASSIGN_OR_RETURN(Value value, RequiredColumn(row, column));
  ASSIGN_OR_RETURN(Value messages, ListFrom(std::move(value), column));
  if (messages.items().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("column \"", column, "\" is an empty list; a conversation has at least one message"));
  }
  return messages;
}

absl::Status CheckContent(const Value& message, std::string_view role) {
  const Value content = message.Field("content");
  if (IsMissing(content)) {
    const bool says_other = role == "assistant" &&
                            (!IsMissing(message.Field("tool_calls")) || !IsMissing(message.Field("reasoning_content")));
    return says_other ? absl::OkStatus() : absl::InvalidArgumentError("has no content");
  }
  if (content.is_string()) return absl::OkStatus();
  if (!content.is_list()) {
    return absl::InvalidArgumentError(absl::StrCat("content has type ", jinja::TypeName(content), ", text expected"));
  }
  for (const Value& part : content.items()) {
    if (!part.is_dict()) return absl::InvalidArgumentError("content is a list whose parts are not all objects");
  }
  return absl::OkStatus();
}

absl::Status CheckMessage(const Value& message) {
  if (!message.is_dict()) {
    return absl::InvalidArgumentError(absl::StrCat("has type ", jinja::TypeName(message), ", an object expected"));
  }
  const Value role = message.Field("role");
  if (!role.is_string()) {
    return absl::InvalidArgumentError(
        message.Field("from").is_string() ? "has no role but a `from`: is the format sharegpt?" : "has no role");
  }
  return CheckContent(message, role.string());
}

struct Speaker {
  std::string_view from, role;
};

constexpr Speaker kSpeakers[] = {{"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
                                 {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"system", "system"},
                                 {"tool", "tool"},           {"observation", "tool"}};

absl::StatusOr<Value> FromShareGpt(const Value& turn) {
  const Value from = turn.Field("from");
  const Value value = turn.Field("value");
  if (!from.is_string()) {
    return absl::InvalidArgumentError(
        turn.Field("role").is_string() ? "has no `from` but a role: is the format messages?" : "has no `from`");
  }
  if (!value.is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("value has type ", jinja::TypeName(value), ", text expected"));
  }
  for (const Speaker& speaker : kSpeakers) {
    if (from.string() != speaker.from) continue;
    return Value::DictOf({{"role", Value::String(std::string(speaker.role))}, {"content", value}});
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown speaker \"", from.string(),
      "\"; known: ", absl::StrJoin(kSpeakers, ", ", [](std::string* out, const Speaker& s) { out->append(s.from); })));
}

std::string MessageName(const std::string& column, size_t index) { return absl::StrCat(column, "[", index, "]"); }

}  // namespace

absl::StatusOr<Value> RequiredColumn(const Row& row, const std::string& column) {
  Value value = row.Field(column);
  if (value.is_undefined()) {
    const std::string present = absl::StrJoin(row.dict().items(), ", ", [](std::string* out, const auto& item) {
      absl::StrAppend(out, "\"", item.first.string(), "\"");
    });
    return absl::InvalidArgumentError(
        absl::StrCat("no column \"", column, "\"; the columns here are ", present.empty() ? "none" : present));
  }
  if (value.is_none()) return absl::InvalidArgumentError(absl::StrCat("column \"", column, "\" is null"));
  return value;
}

absl::StatusOr<Value> MessagesColumn(const Row& row, const std::string& column) {
  ASSIGN_OR_RETURN(Value messages, MessageList(row, column));
  for (size_t i = 0; i < messages.items().size(); ++i) {
    RETURN_IF_ERROR(Annotate(CheckMessage(messages.items()[i]), MessageName(column, i)));
  }
  return messages;
}

absl::StatusOr<Value> ShareGptColumn(const Row& row, const std::string& column) {
  ASSIGN_OR_RETURN(const Value turns, MessageList(row, column));
  std::vector<Value> messages;
  for (size_t i = 0; i < turns.items().size(); ++i) {
    absl::StatusOr<Value> message = FromShareGpt(turns.items()[i]);
    if (!message.ok()) return Annotate(message.status(), MessageName(column, i));
    messages.push_back(std::move(message).value());
  }
  return Value::List(std::move(messages));
}

absl::StatusOr<std::optional<Value>> ToolsColumn(const Row& row, const std::string& column) {
  Value value = row.Field(column);
  // Empty text stands for "no tools" in files that keep tools as JSON text.
  if (IsMissing(value) || (value.is_string() && value.string().empty())) return std::nullopt;
  ASSIGN_OR_RETURN(Value tools, ListFrom(std::move(value), column));
  if (tools.items().empty()) return std::nullopt;
  return tools;
}

absl::StatusOr<std::optional<bool>> FlagColumn(const Row& row, const std::string& column) {
  const Value value = row.Field(column);
  if (IsMissing(value)) return std::nullopt;
  if (!value.is_bool()) {
    return absl::InvalidArgumentError(
        absl::StrCat("column \"", column, "\" has type ", jinja::TypeName(value), ", true or false expected"));
  }
  return value.bool_value();
}

Value WithSystemPrompt(const Value& messages, const std::string& system_prompt) {
  const Value first_role = messages.items()[0].Field("role");
  if (first_role.is_string() && (first_role.string() == "system" || first_role.string() == "developer"))
    return messages;
  std::vector<Value> with_system = {
      Value::DictOf({{"role", Value::String("system")}, {"content", Value::String(system_prompt)}})};
  with_system.insert(with_system.end(), messages.items().begin(), messages.items().end());
  return Value::List(std::move(with_system));
}

}  // namespace sluice::engine
