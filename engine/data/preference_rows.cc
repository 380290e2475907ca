#include "engine/data/preference_rows.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/data/messages.h"

namespace sluice::engine {
namespace {

using jinja::Value;
using Kind = PromptWithResponse::Kind;

bool IsMissing(const Value& value) { return value.is_undefined() || value.is_none(); }

absl::Status Error(const std::string& column, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("column \"", column, "\" ", what));
}

// Messages may come as JSON text; any other text is a text.
bool IsMessages(const Value& value) {
  return value.is_list() || (value.is_string() && value.string().starts_with("[{"));
}

absl::Status CheckText(const Value& value, const std::string& column) {
  if (value.is_string()) return absl::OkStatus();
  return Error(column, absl::StrCat("has type ", jinja::TypeName(value), ", text or a list of messages expected"));
}

// What the assistant says.
absl::Status CheckResponse(const PromptWithResponse& sample, const std::string& column) {
  if (sample.kind != Kind::kConversation) {
    return sample.response.empty() ? Error(column, "holds an empty response") : absl::OkStatus();
  }
  if (sample.response_messages.items().empty()) return Error(column, "has no message of its own behind the prompt");
  const std::string& role = sample.response_messages.items()[0].Field("role").string();
  if (role == "assistant") return absl::OkStatus();
  return Error(column,
               absl::StrCat("begins its response with a turn of \"", role, "\", one of \"assistant\" expected"));
}

std::vector<Value> Slice(const Value& list, size_t begin, size_t end) {
  return {list.items().begin() + static_cast<std::ptrdiff_t>(begin),
          list.items().begin() + static_cast<std::ptrdiff_t>(end)};
}

// A prompt that is in its own column, with the response in `column`.
absl::StatusOr<PromptWithResponse> WithPrompt(const Row& row, const std::string& prompt_column,
                                              const std::string& column) {
  PromptWithResponse sample;
  ASSIGN_OR_RETURN(const Value prompt, RequiredColumn(row, prompt_column));
  ASSIGN_OR_RETURN(const Value response, RequiredColumn(row, column));
  if (!IsMessages(prompt) && !IsMessages(response)) {
    RETURN_IF_ERROR(CheckText(prompt, prompt_column));
    RETURN_IF_ERROR(CheckText(response, column));
    sample.prompt = prompt.string();
    sample.response = response.string();
    if (sample.prompt.empty()) return Error(prompt_column, "holds an empty prompt");
    return sample;
  }
  sample.kind = Kind::kConversation;
  if (!IsMessages(prompt)) {
    RETURN_IF_ERROR(CheckText(prompt, prompt_column));
    return Error(column, absl::StrCat("holds messages and \"", prompt_column, "\" a text; both must be of one kind"));
  }
  ASSIGN_OR_RETURN(sample.prompt_messages, MessagesColumn(row, prompt_column));
  if (IsMessages(response)) {
    ASSIGN_OR_RETURN(sample.response_messages, MessagesColumn(row, column));
  } else {
    RETURN_IF_ERROR(CheckText(response, column));
    if (response.string().empty()) return Error(column, "holds an empty response");
    sample.response_messages =
        Value::List({Value::DictOf({{"role", Value::String("assistant")}, {"content", response}})});
  }
  return sample;
}

// Two whole conversations: the prompt is the messages they begin with in common.
absl::StatusOr<PreferenceSample> SplitConversations(const Row& row, const PreferenceColumns& columns) {
  ASSIGN_OR_RETURN(const Value chosen, MessagesColumn(row, columns.chosen));
  ASSIGN_OR_RETURN(const Value rejected, MessagesColumn(row, columns.rejected));
  const size_t shorter = std::min(chosen.items().size(), rejected.items().size());
  size_t common = 0;
  while (common < shorter && jinja::IsEqual(chosen.items()[common], rejected.items()[common])) ++common;
  if (common == 0) {
    return Error(columns.chosen,
                 absl::StrCat("and \"", columns.rejected, "\" begin with no message in common, and no \"",
                              columns.prompt, "\" is there"));
  }
  PreferenceSample sample;
  const auto fill = [&](const Value& messages, PromptWithResponse* side) {
    side->kind = Kind::kConversation;
    side->prompt_messages = Value::List(Slice(messages, 0, common));
    side->response_messages = Value::List(Slice(messages, common, messages.items().size()));
  };
  fill(chosen, &sample.chosen);
  fill(rejected, &sample.rejected);
  return sample;
}

// Two whole texts: the prompt is what they begin with in common, in whole characters; a space at its end belongs to the
// responses, whose first token holds it.
absl::StatusOr<PreferenceSample> SplitTexts(const Row& row, const PreferenceColumns& columns) {
  PreferenceSample sample;
  const Value chosen_value = row.Field(columns.chosen);
  const Value rejected_value = row.Field(columns.rejected);
  RETURN_IF_ERROR(CheckText(chosen_value, columns.chosen));
  RETURN_IF_ERROR(CheckText(rejected_value, columns.rejected));
  const std::string& chosen = chosen_value.string();
  const std::string& rejected = rejected_value.string();
  const auto differ = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
  size_t common = static_cast<size_t>(differ.first - chosen.begin());
  const auto is_inside_character = [](const std::string& text, size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (common > 0 && (is_inside_character(chosen, common) || is_inside_character(rejected, common))) --common;
  if (common > 0 && chosen[common - 1] == ' ') --common;
  if (common == 0) {
    return Error(columns.chosen, absl::StrCat("and \"", columns.rejected, "\" begin with nothing in common, and no \"",
                                              columns.prompt, "\" is there"));
  }
  const auto fill = [&](const std::string& text, PromptWithResponse* side) {
    side->kind = Kind::kText;
    side->prompt = text.substr(0, common);
    side->response = text.substr(common);
  };
  fill(chosen, &sample.chosen);
  fill(rejected, &sample.rejected);
  return sample;
}

absl::StatusOr<PreferenceSample> SplitRow(const Row& row, const PreferenceColumns& columns) {
  ASSIGN_OR_RETURN(const Value chosen, RequiredColumn(row, columns.chosen));
  ASSIGN_OR_RETURN(const Value rejected, RequiredColumn(row, columns.rejected));
  if (IsMessages(chosen) != IsMessages(rejected)) {
    return Error(columns.chosen,
                 absl::StrCat("and \"", columns.rejected, "\" are not both texts or both lists of messages"));
  }
  const Value prompt = row.Field(columns.prompt);
  if (IsMissing(prompt) || (IsMessages(chosen) && !IsMessages(prompt))) {
    return IsMessages(chosen) ? SplitConversations(row, columns) : SplitTexts(row, columns);
  }
  PreferenceSample sample;
  ASSIGN_OR_RETURN(sample.chosen, WithPrompt(row, columns.prompt, columns.chosen));
  ASSIGN_OR_RETURN(sample.rejected, WithPrompt(row, columns.prompt, columns.rejected));
  return sample;
}

absl::Status Complete(const Row& row, const PreferenceColumns& columns, const std::string& column,
                      PromptWithResponse* sample) {
  RETURN_IF_ERROR(CheckResponse(*sample, column));
  ASSIGN_OR_RETURN(sample->tools, ToolsColumn(row, columns.tools));
  sample->system_prompt = columns.system_prompt;
  if (sample->kind == Kind::kConversation && !columns.system_prompt.empty()) {
    sample->prompt_messages = WithSystemPrompt(sample->prompt_messages, columns.system_prompt);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreferenceSample> PreferenceFromRow(const Row& row, const PreferenceColumns& columns) {
  ASSIGN_OR_RETURN(PreferenceSample sample, SplitRow(row, columns));
  if (sample.chosen.response == sample.rejected.response &&
      jinja::IsEqual(sample.chosen.response_messages, sample.rejected.response_messages)) {
    return Error(columns.chosen, absl::StrCat("and \"", columns.rejected, "\" are the same; nothing can be preferred"));
  }
  RETURN_IF_ERROR(Complete(row, columns, columns.chosen, &sample.chosen));
  RETURN_IF_ERROR(Complete(row, columns, columns.rejected, &sample.rejected));
  const Value margin = row.Field(columns.margin);
  if (IsMissing(margin)) return sample;
  if (!margin.is_number() || margin.is_bool() || !std::isfinite(jinja::AsDouble(margin))) {
    return Error(columns.margin, absl::StrCat("has type ", jinja::TypeName(margin), ", a finite number expected"));
  }
  sample.margin = jinja::AsDouble(margin);
  return sample;
}

absl::StatusOr<LabelledSample> LabelledFromRow(const Row& row, const PreferenceColumns& columns) {
  LabelledSample sample;
  ASSIGN_OR_RETURN(sample.completion, WithPrompt(row, columns.prompt, columns.completion));
  RETURN_IF_ERROR(Complete(row, columns, columns.completion, &sample.completion));
  ASSIGN_OR_RETURN(const Value label, RequiredColumn(row, columns.label));
  if (label.is_bool()) {
    sample.wanted = label.bool_value();
  } else if (label.kind() == Value::Kind::kInt && (label.int_value() == 0 || label.int_value() == 1)) {
    sample.wanted = label.int_value() == 1;
  } else {
    return Error(columns.label, absl::StrCat("has type ", jinja::TypeName(label), ", true or false expected"));
  }
  return sample;
}

}  // namespace sluice::engine
