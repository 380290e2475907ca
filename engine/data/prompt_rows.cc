#include "engine/data/prompt_rows.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/messages.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {
namespace {

using jinja::Value;

constexpr std::string_view kGsm8kSource = "openai/gsm8k";
constexpr std::string_view kAnswerMark = "####";

bool IsMissing(const Value& value) { return value.is_undefined() || value.is_none(); }

absl::Status TypeError(const std::string& column, const Value& value, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("column \"", column, "\" has type ", jinja::TypeName(value), ", ", expected, " expected"));
}

// Empty where the row has no such column.
absl::StatusOr<std::string> OptionalText(const Row& row, const std::string& column) {
  const Value value = row.Field(column);
  if (IsMissing(value)) return "";
  if (!value.is_string()) return TypeError(column, value, "text");
  return value.string();
}

absl::StatusOr<std::string> RequiredText(const Row& row, const std::string& column) {
  ASSIGN_OR_RETURN(const Value value, RequiredColumn(row, column));
  if (!value.is_string()) return TypeError(column, value, "text");
  return value.string();
}

// Text as it is, anything else as JSON: some data sets hold the truth as a number or a list.
absl::StatusOr<std::string> TruthText(const Value& value) {
  if (IsMissing(value)) return "";
  if (value.is_string()) return value.string();
  return jinja::ToJson(value);
}

// A dict, or the JSON text of one.
absl::StatusOr<Value> DictColumn(const Row& row, const std::string& column) {
  Value value = row.Field(column);
  if (IsMissing(value)) return Value::None();
  if (value.is_string()) {
    if (value.string().empty()) return Value::None();
    absl::StatusOr<Value> parsed = jinja::ParseJson(value.string());
    if (!parsed.ok()) return Annotate(parsed.status(), absl::StrCat("column \"", column, "\" holds text"));
    value = *std::move(parsed);
  }
  if (!value.is_dict()) return TypeError(column, value, "an object");
  return value;
}

Value UserTurn(const std::string& text) {
  return Value::List({Value::DictOf({{"role", Value::String("user")}, {"content", Value::String(text)}})});
}

bool IsBlank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// Whether any message beside a system turn has something to say: a text that is not blank, a part that is no text, or a
// tool call.
bool SaysSomething(const Value& messages) {
  for (const Value& message : messages.items()) {
    const std::string& role = message.Field("role").string();
    if (role == "system" || role == "developer") continue;
    const Value content = message.Field("content");
    if (content.is_string() ? !IsBlank(content.string()) : !IsMissing(message.Field("tool_calls"))) return true;
    if (!content.is_list()) continue;
    for (const Value& part : content.items()) {
      const Value text = part.Field("text");
      if (!text.is_string() || !IsBlank(text.string())) return true;
    }
  }
  return false;
}

// "... #### 1,234" as "1234".
absl::StatusOr<std::string> Gsm8kTruth(std::string_view answer) {
  const size_t mark = answer.rfind(kAnswerMark);
  if (mark == std::string_view::npos) {
    return absl::InvalidArgumentError("column \"answer\" has no \"####\" before its result");
  }
  std::string truth;
  for (char c : answer.substr(mark + kAnswerMark.size())) {
    if (c != ',' && c != ' ' && c != '\n' && c != '\r' && c != '\t') truth += c;
  }
  if (truth.empty()) return absl::InvalidArgumentError("column \"answer\" has nothing after its \"####\"");
  return truth;
}

bool Has(const std::vector<std::string>& columns, const std::string& name) {
  return std::find(columns.begin(), columns.end(), name) != columns.end();
}

}  // namespace

std::vector<std::string> PromptFormatNames() { return {"auto", "prompt", "gsm8k"}; }

PromptFormat::PromptFormat(std::string name, PromptFormatOptions options)
    : name_(std::move(name)), options_(std::move(options)) {}

absl::StatusOr<PromptFormat> PromptFormat::Resolve(const PromptFormatOptions& options,
                                                   const std::vector<std::string>& columns) {
  const std::vector<std::string> names = PromptFormatNames();
  if (!Has(names, options.format)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown format \"", options.format, "\"; one of ", absl::StrJoin(names, ", ")));
  }
  const bool has_prompt = Has(columns, options.prompt_key);
  const bool has_gsm8k = Has(columns, "question") && Has(columns, "answer");
  if (options.format != "gsm8k" && has_prompt) return PromptFormat("prompt", options);
  if (options.format != "prompt" && has_gsm8k) return PromptFormat("gsm8k", options);
  const std::string needed = options.format == "gsm8k"    ? "columns \"question\" and \"answer\""
                             : options.format == "prompt" ? absl::StrCat("a column \"", options.prompt_key, "\"")
                                                          : absl::StrCat("a column \"", options.prompt_key,
                                                                         "\", or \"question\" and \"answer\"");
  const std::string present =
      absl::StrJoin(columns, ", ", [](std::string* out, const std::string& c) { absl::StrAppend(out, "\"", c, "\""); });
  return absl::InvalidArgumentError(absl::StrCat("format ", options.format, " needs ", needed,
                                                 "; the columns here are ", present.empty() ? "none" : present,
                                                 " (data.prompt_key names the prompt's)"));
}

std::vector<std::string> PromptFormat::columns() const {
  std::vector<std::string> names = {options_.reward_fn_key, "extra_info", "ability", options_.tools_key,
                                    options_.enable_thinking_key};
  if (name_ == "gsm8k") {
    names.insert(names.end(), {"question", "answer"});
  } else {
    names.insert(names.end(), {options_.prompt_key, "reward_model", options_.ground_truth_key});
  }
  return names;
}

absl::StatusOr<PromptSample> PromptFormat::Convert(const Row& row, bool has_chat_template) const {
  PromptSample sample;
  Sample& conversation = sample.conversation;
  ASSIGN_OR_RETURN(sample.data_source, OptionalText(row, options_.reward_fn_key));
  ASSIGN_OR_RETURN(sample.ability, OptionalText(row, "ability"));
  ASSIGN_OR_RETURN(const Value extra_info, DictColumn(row, "extra_info"));
  if (extra_info.is_dict()) {
    ASSIGN_OR_RETURN(sample.extra_info_json, jinja::ToJson(extra_info));
  }
  std::optional<std::string> text;
  if (name_ == "gsm8k") {
    ASSIGN_OR_RETURN(std::string question, RequiredText(row, "question"));
    if (IsBlank(question)) return absl::InvalidArgumentError("column \"question\" is empty");
    ASSIGN_OR_RETURN(const std::string answer, RequiredText(row, "answer"));
    ASSIGN_OR_RETURN(sample.ground_truth, Gsm8kTruth(answer));
    if (sample.data_source.empty()) sample.data_source = kGsm8kSource;
    text = question + options_.gsm8k_suffix;
  } else {
    ASSIGN_OR_RETURN(const Value prompt, RequiredColumn(row, options_.prompt_key));
    // A text that is a JSON list of messages is one, as elsewhere; any other text is the prompt itself.
    if (prompt.is_string() && !prompt.string().starts_with("[{")) {
      text = prompt.string();
    } else {
      ASSIGN_OR_RETURN(conversation.messages, MessagesColumn(row, options_.prompt_key));
    }
    ASSIGN_OR_RETURN(const Value reward_model, DictColumn(row, "reward_model"));
    const Value truth = reward_model.is_dict() ? reward_model.Field("ground_truth") : Value();
    ASSIGN_OR_RETURN(sample.ground_truth, TruthText(IsMissing(truth) ? row.Field(options_.ground_truth_key) : truth));
  }
  if (text.has_value() ? IsBlank(*text) : !SaysSomething(conversation.messages)) {
    return absl::InvalidArgumentError(absl::StrCat("column \"", options_.prompt_key, "\" holds an empty prompt"));
  }
  ASSIGN_OR_RETURN(conversation.tools, ToolsColumn(row, options_.tools_key));
  ASSIGN_OR_RETURN(conversation.enable_thinking, FlagColumn(row, options_.enable_thinking_key));
  if (text.has_value() && !has_chat_template) {
    if (!options_.system_prompt.empty()) {
      return absl::InvalidArgumentError("a system prompt needs a chat template and the model folder has none");
    }
    conversation.kind = Sample::Kind::kText;
    conversation.text = *std::move(text);
    return sample;
  }
  conversation.kind = Sample::Kind::kConversation;
  if (text.has_value()) conversation.messages = UserTurn(*text);
  if (!options_.system_prompt.empty()) {
    conversation.messages = WithSystemPrompt(conversation.messages, options_.system_prompt);
  }
  return sample;
}

}  // namespace sluice::engine
