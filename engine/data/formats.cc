#include "engine/data/formats.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/messages.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {

// Convert functions get the columns bound to each place, in the order of `places`.
struct RowFormat::Entry {
  std::string_view name;
  Sample::Kind kind;
  // For each place of the format, the column names that may fill it. A format that was asked for by name takes the
  // first, `auto` the first that is there.
  std::vector<std::vector<std::string>> (*places)(const ColumnNames& columns);
  absl::StatusOr<Sample> (*convert)(const Row& row, const std::vector<std::string>& columns);
};

namespace {

using jinja::Value;

absl::StatusOr<std::string> TextColumn(const Row& row, const std::string& column) {
  ASSIGN_OR_RETURN(Value value, RequiredColumn(row, column));
  if (!value.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("column \"", column, "\" has type ", jinja::TypeName(value), ", text expected"));
  }
  return value.string();
}

absl::StatusOr<Sample> ConvertMessages(const Row& row, const std::vector<std::string>& columns) {
  Sample sample;
  ASSIGN_OR_RETURN(sample.messages, MessagesColumn(row, columns[0]));
  return sample;
}

absl::StatusOr<Sample> ConvertShareGpt(const Row& row, const std::vector<std::string>& columns) {
  Sample sample;
  ASSIGN_OR_RETURN(sample.messages, ShareGptColumn(row, columns[0]));
  return sample;
}

absl::StatusOr<Sample> ConvertPromptResponse(const Row& row, const std::vector<std::string>& columns) {
  Sample sample;
  ASSIGN_OR_RETURN(sample.prompt, TextColumn(row, columns[0]));
  ASSIGN_OR_RETURN(sample.response, TextColumn(row, columns[1]));
  return sample;
}

// The wording is the one Stanford Alpaca was trained with; other prompts would not match models tuned on it.
absl::StatusOr<Sample> ConvertAlpaca(const Row& row, const std::vector<std::string>& columns) {
  Sample sample;
  ASSIGN_OR_RETURN(const std::string instruction, TextColumn(row, columns[0]));
  ASSIGN_OR_RETURN(sample.response, TextColumn(row, columns[1]));
  std::string input;
  if (const Value value = row.Field("input"); !value.is_undefined() && !value.is_none()) {
    ASSIGN_OR_RETURN(input, TextColumn(row, "input"));
  }
  if (input.empty()) {
    sample.prompt = absl::StrCat(
        "Below is an instruction that describes a task. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\n",
        instruction, "\n\n### Response:\n");
  } else {
    sample.prompt = absl::StrCat(
        "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
        "response that appropriately completes the request.\n\n### Instruction:\n",
        instruction, "\n\n### Input:\n", input, "\n\n### Response:\n");
  }
  return sample;
}

absl::StatusOr<Sample> ConvertHellaSwag(const Row& row, const std::vector<std::string>& columns) {
  Sample sample;
  ASSIGN_OR_RETURN(sample.prompt, TextColumn(row, columns[0]));
  ASSIGN_OR_RETURN(const Value endings, RequiredColumn(row, columns[1]));
  ASSIGN_OR_RETURN(const Value label, RequiredColumn(row, columns[2]));
  if (!endings.is_list()) {
    return absl::InvalidArgumentError(
        absl::StrCat("column \"endings\" has type ", jinja::TypeName(endings), ", a list of texts expected"));
  }
  // The published files hold the label as text in one release and as a number in another; test rows have none.
  int64_t index = -1;
  if (label.kind() == Value::Kind::kInt) index = label.int_value();
  if (label.is_string() && !absl::SimpleAtoi(label.string(), &index)) index = -1;
  if (index < 0 || index >= static_cast<int64_t>(endings.items().size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("column \"label\" is not the number of one of the ", endings.items().size(), " endings"));
  }
  const Value& ending = endings.items()[index];
  if (!ending.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("endings[", index, "] has type ", jinja::TypeName(ending), ", text expected"));
  }
  // The two halves of a sentence are stored without the space between them.
  const bool needs_space = !sample.prompt.empty() && sample.prompt.back() != ' ' && !ending.string().starts_with(' ');
  sample.response = absl::StrCat(needs_space ? " " : "", ending.string());
  return sample;
}

absl::StatusOr<Sample> ConvertText(const Row& row, const std::vector<std::string>& columns) {
  Sample sample;
  ASSIGN_OR_RETURN(sample.text, TextColumn(row, columns[0]));
  return sample;
}

using Places = std::vector<std::vector<std::string>>;

// `auto` takes the first that fits, so the more particular ones come first: alpaca files also have a `text` column.
const std::vector<RowFormat::Entry>& Table() {
  static const auto* table = new std::vector<RowFormat::Entry>{
      {"messages", Sample::Kind::kConversation, [](const ColumnNames& c) -> Places { return {{c.messages}}; },
       ConvertMessages},
      {"sharegpt", Sample::Kind::kConversation,
       [](const ColumnNames& c) -> Places {
         return {{c.messages == ColumnNames().messages ? "conversations" : c.messages}};
       },
       ConvertShareGpt},
      {"alpaca", Sample::Kind::kPromptResponse,
       [](const ColumnNames&) -> Places {
         return {{"instruction"}, {"output"}};
       },
       ConvertAlpaca},
      {"hellaswag", Sample::Kind::kContinuation,
       [](const ColumnNames&) -> Places {
         return {{"ctx"}, {"endings"}, {"label"}};
       },
       ConvertHellaSwag},
      {"gsm8k", Sample::Kind::kPromptResponse,
       [](const ColumnNames&) -> Places {
         return {{"question"}, {"answer"}};
       },
       ConvertPromptResponse},
      {"prompt_response", Sample::Kind::kPromptResponse,
       [](const ColumnNames& c) -> Places {
         return {{c.prompt, "prompt", "question"}, {c.response, "response", "completion", "answer"}};
       },
       ConvertPromptResponse},
      {"text", Sample::Kind::kText, [](const ColumnNames& c) -> Places { return {{c.text}}; }, ConvertText},
  };
  return *table;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string Quoted(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  return absl::StrJoin(names, ", ",
                       [](std::string* out, const std::string& name) { absl::StrAppend(out, "\"", name, "\""); });
}

// The columns for a format's places, or nothing where a place cannot be filled.
std::optional<std::vector<std::string>> Bind(const Places& places, const std::vector<std::string>& columns) {
  std::vector<std::string> bound;
  for (const std::vector<std::string>& names : places) {
    const auto found =
        std::find_if(names.begin(), names.end(), [&](const auto& name) { return Contains(columns, name); });
    if (found == names.end()) return std::nullopt;
    bound.push_back(*found);
  }
  return bound;
}

}  // namespace

std::vector<std::string> FormatNames() {
  std::vector<std::string> names = {"auto"};
  for (const RowFormat::Entry& entry : Table()) names.emplace_back(entry.name);
  return names;
}

RowFormat::RowFormat(const Entry* entry, std::vector<std::string> required, FormatOptions options)
    : entry_(entry), required_(std::move(required)), options_(std::move(options)) {}

absl::StatusOr<RowFormat> RowFormat::Resolve(const FormatOptions& options, const std::vector<std::string>& columns) {
  ASSIGN_OR_RETURN(RowFormat format, Choose(options, columns));
  const bool has_turns = format.kind() == Sample::Kind::kConversation || format.kind() == Sample::Kind::kPromptResponse;
  if (!options.system_prompt.empty() && !has_turns) {
    return absl::InvalidArgumentError(absl::StrCat("system_prompt has no place in format ", std::string(format.name()),
                                                   ", which has no turns; remove it"));
  }
  return format;
}

absl::StatusOr<RowFormat> RowFormat::Choose(const FormatOptions& options, const std::vector<std::string>& columns) {
  for (const Entry& entry : Table()) {
    const Places places = entry.places(options.columns);
    if (options.format == "auto") {
      if (auto bound = Bind(places, columns)) return RowFormat(&entry, *std::move(bound), options);
      continue;
    }
    if (options.format != entry.name) continue;
    std::vector<std::string> required;
    for (const std::vector<std::string>& names : places) {
      if (!Contains(columns, names[0])) {
        return absl::InvalidArgumentError(absl::StrCat("format ", options.format, " needs a column \"", names[0],
                                                       "\"; the columns here are ", Quoted(columns)));
      }
      required.push_back(names[0]);
    }
    return RowFormat(&entry, std::move(required), options);
  }
  if (options.format == "auto") {
    return absl::InvalidArgumentError(absl::StrCat(
        "format auto knows no format with the columns ", Quoted(columns),
        "; set the format and the names of its columns (formats: ", absl::StrJoin(FormatNames(), ", "), ")"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown format \"", options.format, "\"; one of ", absl::StrJoin(FormatNames(), ", ")));
}

std::string_view RowFormat::name() const { return entry_->name; }
Sample::Kind RowFormat::kind() const { return entry_->kind; }

std::vector<std::string> RowFormat::columns() const {
  std::vector<std::string> names = required_;
  if (entry_->name == "alpaca") names.push_back("input");
  names.push_back(options_.columns.tools);
  names.push_back(options_.columns.enable_thinking);
  return names;
}

std::string RowFormat::Fingerprint() const {
  return absl::StrCat(std::string(entry_->name), "\n", absl::StrJoin(columns(), "\n"), "\n", options_.system_prompt);
}

absl::StatusOr<Sample> RowFormat::Convert(const Row& row) const {
  ASSIGN_OR_RETURN(Sample sample, entry_->convert(row, required_));
  sample.kind = entry_->kind;
  if (sample.kind == Sample::Kind::kPromptResponse) {
    sample.messages = Value::List(
        {Value::DictOf({{"role", Value::String("user")}, {"content", Value::String(sample.prompt)}}),
         Value::DictOf({{"role", Value::String("assistant")}, {"content", Value::String(sample.response)}})});
  }
  if (sample.kind == Sample::Kind::kContinuation || sample.kind == Sample::Kind::kText) return sample;
  if (!options_.system_prompt.empty()) sample.messages = WithSystemPrompt(sample.messages, options_.system_prompt);
  ASSIGN_OR_RETURN(sample.tools, ToolsColumn(row, options_.columns.tools));
  ASSIGN_OR_RETURN(sample.enable_thinking, FlagColumn(row, options_.columns.enable_thinking));
  return sample;
}

}  // namespace sluice::engine
