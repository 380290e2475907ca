#include "common/reward_kinds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace sluice {
namespace {

using Type = RewardOptionType;

constexpr double kAnyNumber = -std::numeric_limits<double>::infinity();

RewardOption Optional(std::string_view name, Type type, std::string_view default_value, double minimum,
                      std::string_view doc) {
  return {name, type, default_value, /*required=*/false, minimum, {}, doc};
}

RewardOption Required(std::string_view name, Type type, double minimum, std::string_view doc) {
  return {name, type, "", /*required=*/true, minimum, {}, doc};
}

RewardOption Choice(std::string_view name, std::vector<std::string_view> choices, std::string_view doc) {
  const std::string_view first = choices[0];
  return {name, Type::kText, first, /*required=*/false, kAnyNumber, std::move(choices), doc};
}

std::vector<RewardKind> MakeTable() {
  return {
      {"auto",
       "The rule that belongs to the row's data source, such as `gsm8k` for `openai/gsm8k`; a source without a rule is "
       "an error.",
       {Optional("sources", Type::kText, "", kAnyNumber,
                 "Rules for further data sources: `my_source=gsm8k, other=math`.")}},
      {"gsm8k",
       "1 where the last number after `####` in the last 300 characters equals the truth, else 0.",
       {Choice("method", {"strict", "flexible", "numeric"},
               "`strict` wants `#### ` before the number; `flexible` takes the last number and compares its text; "
               "`numeric` takes the last number and compares its value, so that `1,000.` equals `1000`."),
        Optional("score", Type::kFloat, "1", kAnyNumber, "Score of a right answer."),
        Optional("format_score", Type::kFloat, "0", kAnyNumber, "Score of a wrong answer in the right form.")}},
      {"math", "1 where the content of the last `\\boxed` equals the truth as mathematics is written, else 0.", {}},
      {"math_dapo",
       "1 where the last `Answer: ` in the last 300 characters equals the truth, else -1.",
       {Optional("strict_box", Type::kBool, "false", kAnyNumber,
                 "Take the last `\\boxed` in the last 100 characters, and compare without normalising.")}},
      {"format",
       "1 where the response matches a regular expression (PCRE2), else 0.",
       {Required("pattern", Type::kText, kAnyNumber, "The expression; `.` matches line ends too."),
        Choice("mode", {"full", "search"}, "Whether the whole response must match, or a part of it."),
        Optional("score", Type::kFloat, "1", kAnyNumber, "Score of a response that matches."),
        Optional("else_score", Type::kFloat, "0", kAnyNumber, "Score of one that does not."),
        Optional("match_limit", Type::kInt, "1000000", 1,
                 "Steps of the matcher after which a response has an error in place of a score.")}},
      {"exact_match",
       "1 where the response is the truth, else 0.",
       {Optional("strip", Type::kBool, "true", kAnyNumber, "Leave out white space around both."),
        Optional("ignore_case", Type::kBool, "false", kAnyNumber, "Take ASCII letters of both cases as equal.")}},
      {"length",
       "A number of at most 0 for a length that is not wanted: `overlong` is min(-(tokens - (max_tokens - buffer)) / "
       "buffer * factor, 0); `target` is -min(|tokens - max_tokens| / buffer, 1) * factor.",
       {Choice("mode", {"overlong", "target"}, "Which of the two."),
        Required("max_tokens", Type::kInt, 1,
                 "`overlong`: the longest response, usually data.max_response_length; `target`: the length wanted."),
        Optional("buffer", Type::kInt, "512", 1, "Tokens over which the penalty grows to its full size."),
        Optional("factor", Type::kFloat, "1", 0, "The full size of the penalty.")}},
      {"python",
       "What the function in a Python file of yours returns: a number, or a dict with `score` whose further numbers "
       "become metrics.",
       {Required("path", Type::kText, kAnyNumber, "The file."),
        Optional("function", Type::kText, "compute_score", kAnyNumber, "The function's name in it."),
        Optional("kwargs", Type::kJson, "{}", kAnyNumber, "Further keyword arguments of each call."),
        Optional("python", Type::kText, "", kAnyNumber, "The interpreter; empty: python3 of $PATH."),
        Optional("workers", Type::kInt, "2", 1, "Processes."),
        Optional("timeout", Type::kDuration, "10s", 0.001, "Longest time of one call; the process is killed then."),
        Optional("start_timeout", Type::kDuration, "60s", 0.001, "Longest time of importing the file."),
        Optional("memory", Type::kBytes, "8GiB", 64 << 20, "Address space of a process."),
        Optional("file_size", Type::kBytes, "64MiB", 1 << 20, "Largest file that a process may write.")}},
      {"model",
       "The number that a reward model gives the answer at its last token: a folder that recipe reward_model wrote, or "
       "another with a "
       "`score.weight` and the policy's tokens. It runs on the policy's device.",
       {Required("path", Type::kText, kAnyNumber, "The folder.")}},
      {"none", "0 for every answer, where the loss has another source than rewards, such as recipe distillation.", {}},
      {"remote",
       "What a service of yours answers (proto/sluice/v1/reward.proto).",
       {Required("address", Type::kText, kAnyNumber, "host:port or unix:path."),
        Optional("timeout", Type::kDuration, "60s", 0.001, "Longest time of one attempt at one batch."),
        Optional("max_attempts", Type::kInt, "5", 1, "Attempts at one batch, the first one included."),
        Optional("initial_backoff", Type::kDuration, "200ms", 0, "Longest pause before the second attempt."),
        Optional("max_backoff", Type::kDuration, "10s", 0, "Longest pause before any."),
        Optional("batch_size", Type::kInt, "64", 1, "Responses in one call."),
        Optional("concurrency", Type::kInt, "4", 1, "Calls at one time.")}},
  };
}

const std::vector<RewardKind>& Table() {
  static const auto* table = new std::vector<RewardKind>(MakeTable());
  return *table;
}

std::string_view TypeText(Type type) {
  switch (type) {
    case Type::kText:
      return "text";
    case Type::kBool:
      return "true or false";
    case Type::kInt:
      return "a whole number";
    case Type::kFloat:
      return "a number";
    case Type::kDuration:
      return "a time such as 200ms or 10s";
    case Type::kBytes:
      return "a size such as 64MiB";
    case Type::kJson:
      return "a JSON object";
  }
  return "";
}

struct Unit {
  std::string_view suffix;
  double factor;
};
// A suffix that ends with another one comes first.
constexpr Unit kTimeUnits[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
constexpr Unit kByteUnits[] = {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"", 1}};

bool ParseNumber(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value);
}

bool ParseWithUnit(const std::string& text, absl::Span<const Unit> units, double* value) {
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.suffix)) continue;
    if (!ParseNumber(text.substr(0, text.size() - unit.suffix.size()), value)) return false;
    *value *= unit.factor;
    return std::isfinite(*value);
  }
  return false;
}

// The number that a text of a numeric type stands for; 0 for the other types. False: not of the type.
bool ParseValue(Type type, const std::string& text, double* number) {
  *number = 0;
  int64_t whole = 0;
  switch (type) {
    case Type::kText:
      return true;
    case Type::kBool:
      *number = text == "true";
      return text == "true" || text == "false";
    case Type::kInt:
      // Beyond 2^53 a double would not keep it.
      if (!absl::SimpleAtoi(text, &whole) || std::abs(static_cast<double>(whole)) > 9e15) return false;
      *number = static_cast<double>(whole);
      return true;
    case Type::kFloat:
      return ParseNumber(text, number);
    case Type::kDuration:
      return ParseWithUnit(text, kTimeUnits, number);
    case Type::kBytes:
      return ParseWithUnit(text, kByteUnits, number) && *number <= 9e15;
    case Type::kJson:
      return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false).is_object();
  }
  return false;
}

absl::Status CheckValue(const RewardOption& option, const std::string& text, double* number) {
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(option.name), ": is \"", text, "\", ", what));
  };
  if (!ParseValue(option.type, text, number)) {
    return error(absl::StrCat(std::string(TypeText(option.type)), " expected"));
  }
  if (*number < option.minimum) {
    const char* unit = option.type == Type::kDuration ? "s" : option.type == Type::kBytes ? " bytes" : "";
    return error(absl::StrCat("at least ", option.minimum, unit, " expected"));
  }
  if (!option.choices.empty() &&
      std::find(option.choices.begin(), option.choices.end(), text) == option.choices.end()) {
    return error(absl::StrCat(
        "one of ", absl::StrJoin(option.choices, ", ", [](std::string* out, std::string_view c) { out->append(c); })));
  }
  return absl::OkStatus();
}

template <typename Items>
std::string NamesOf(const Items& items) {
  return absl::StrJoin(items, ", ", [](std::string* out, const auto& item) { out->append(item.name); });
}

}  // namespace

absl::Span<const RewardKind> RewardKinds() { return Table(); }

const RewardKind* FindRewardKind(std::string_view name) {
  for (const RewardKind& kind : Table()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

absl::StatusOr<RewardOptionValues> RewardOptionValues::Parse(const RewardSpec& spec) {
  const RewardKind* kind = FindRewardKind(spec.kind);
  if (kind == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown kind of reward \"", spec.kind, "\"; one of ", NamesOf(Table())));
  }
  for (const auto& [name, value] : spec.options) {
    const bool known = std::any_of(kind->options.begin(), kind->options.end(),
                                   [&](const RewardOption& option) { return option.name == name; });
    if (known) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": reward ", spec.kind, " has no such option; ",
                     kind->options.empty() ? "it has none" : absl::StrCat("it has ", NamesOf(kind->options))));
  }
  RewardOptionValues values;
  for (const RewardOption& option : kind->options) {
    const auto given = spec.options.find(std::string(option.name));
    if (given == spec.options.end() && option.required) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(option.name), ": reward ", spec.kind, " needs it: ", std::string(option.doc)));
    }
    const std::string text = given == spec.options.end() ? std::string(option.default_value) : given->second;
    double number = 0;
    RETURN_IF_ERROR(CheckValue(option, text, &number));
    values.texts_.emplace(option.name, text);
    values.numbers_.emplace(option.name, number);
  }
  return values;
}

const std::string& RewardOptionValues::Text(std::string_view name) const { return texts_.find(name)->second; }
bool RewardOptionValues::Bool(std::string_view name) const { return numbers_.find(name)->second != 0; }
int64_t RewardOptionValues::Int(std::string_view name) const {
  return static_cast<int64_t>(numbers_.find(name)->second);
}
double RewardOptionValues::Float(std::string_view name) const { return numbers_.find(name)->second; }
absl::Duration RewardOptionValues::Duration(std::string_view name) const { return absl::Seconds(Float(name)); }

absl::Status CheckRewardSpecs(absl::Span<const RewardSpec> specs) {
  std::set<std::string> labels;
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string place = absl::StrCat("rewards[", i, "] (", specs[i].label(), ")");
    if (const auto values = RewardOptionValues::Parse(specs[i]); !values.ok()) return Annotate(values.status(), place);
    if (!std::isfinite(specs[i].weight)) {
      return Annotate(absl::InvalidArgumentError("weight: is not a finite number"), place);
    }
    if (!labels.insert(specs[i].label()).second) {
      return Annotate(absl::InvalidArgumentError("another reward has this name; give one of them a `name`"), place);
    }
  }
  return absl::OkStatus();
}

std::string RewardKindsMarkdown() {
  std::string text;
  for (const RewardKind& kind : Table()) {
    absl::StrAppend(&text, "### `", std::string(kind.name), "`\n\n", std::string(kind.doc), "\n\n");
    if (kind.options.empty()) continue;
    absl::StrAppend(&text, "| option | value | default | meaning |\n|---|---|---|---|\n");
    for (const RewardOption& option : kind.options) {
      const std::string value = option.choices.empty()
                                    ? std::string(TypeText(option.type))
                                    : absl::StrJoin(option.choices, ", ", [](std::string* out, std::string_view c) {
                                        absl::StrAppend(out, "`", std::string(c), "`");
                                      });
      const std::string default_value = option.required ? "required"
                                        : option.default_value.empty()
                                            ? ""
                                            : absl::StrCat("`", std::string(option.default_value), "`");
      absl::StrAppend(&text, "| `", std::string(option.name), "` | ", value, " | ", default_value, " | ",
                      std::string(option.doc), " |\n");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace sluice
