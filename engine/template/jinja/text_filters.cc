// Filters over texts. Each takes any value and works on its str().
#include <algorithm>

#include "common/status_macros.h"
#include "engine/template/jinja/arguments.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/filter_tables.h"
#include "engine/template/jinja/html.h"
#include "engine/template/jinja/json.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/python_format.h"
#include "engine/template/jinja/string_search.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

template <std::string (*kChange)(std::string_view)>
Result ChangeText(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("filter", arguments, {}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  return Value::String(kChange(text));
}

// Words begin behind white space, '-' and opening brackets; not behind an apostrophe, as in str.title.
std::string TitleWords(std::string_view text) {
  const auto is_break = [](int32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const bool breaks = is_break(NextCodePoint(text, &i));
    while (i < text.size()) {
      size_t next = i;
      if (is_break(NextCodePoint(text, &next)) != breaks) break;
      i = next;
    }
    const std::string_view word = text.substr(begin, i - begin);
    size_t first_size = 0;
    NextCodePoint(word, &first_size);
    out.append(Upper(word.substr(0, first_size))).append(Lower(word.substr(first_size)));
  }
  return out;
}

Result Trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("trim", arguments, {"chars"}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  if (bound.Get(0, Value::None()).is_none()) return Value::String(std::string(Strip(text, StripSide::kBoth)));
  ASSIGN_OR_RETURN(const std::string characters, bound.Text(0, ""));
  return Value::String(std::string(Strip(text, StripSide::kBoth, &characters)));
}

Result Replace(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("replace", arguments, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  ASSIGN_OR_RETURN(const std::string from, runtime.ToText(bound[0]));
  ASSIGN_OR_RETURN(const std::string to, runtime.ToText(bound[1]));
  int64_t count = -1;
  if (!bound.Get(2, Value::None()).is_none()) {
    ASSIGN_OR_RETURN(count, bound.Integer(2, -1));
  }
  ASSIGN_OR_RETURN(std::string replaced, ReplaceText(runtime, text, from, to, count));
  return Value::String(std::move(replaced));
}

Result String(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("string", arguments, {}));
  if (input.is_string()) return input;
  ASSIGN_OR_RETURN(std::string text, runtime.ToText(input));
  return Value::String(std::move(text));
}

Result Safe(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("safe", arguments, {}));
  ASSIGN_OR_RETURN(std::string text, runtime.ToText(input));
  return Value::SafeString(std::move(text));
}

template <bool kAlsoSafe>
Result Escape(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("escape", arguments, {}));
  if (input.is_safe_string() && !kAlsoSafe) return input;
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  return Value::SafeString(EscapeHtml(text));
}

Result Indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("indent", arguments, {"width", "first", "blank"}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  std::string indentation;
  if (bound.has(0) && bound[0].is_string()) {
    indentation = bound[0].string();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 4));
    ASSIGN_OR_RETURN(indentation, Pad(runtime, "", width, " ", '<'));
  }
  const bool indents_blank = bound.Truth(2, false);
  std::string out = bound.Truth(1, false) ? indentation : "";
  bool is_first = true;
  for (const std::string& line : SplitLines(text + "\n", false)) {
    if (!is_first) out.append("\n");
    if (!is_first && (indents_blank || !line.empty())) out.append(indentation);
    is_first = false;
    out.append(line);
    RETURN_IF_ERROR(runtime.CheckBytes(out.size()));
  }
  return Value::String(std::move(out));
}

Result Center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("center", arguments, {"width"}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 80));
  ASSIGN_OR_RETURN(std::string centered, Pad(runtime, text, width, " ", 'c'));
  return Value::String(std::move(centered));
}

Result Truncate(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  ASSIGN_OR_RETURN(const int64_t length, bound.Integer(0, 255));
  ASSIGN_OR_RETURN(const std::string end, bound.Text(2, "..."));
  int64_t leeway = 5;
  if (!bound.Get(3, Value::None()).is_none()) {
    ASSIGN_OR_RETURN(leeway, bound.Integer(3, leeway));
  }
  const int64_t end_length = static_cast<int64_t>(CodePointCount(end));
  if (length < end_length || leeway < 0) return TemplateError("truncate: length or leeway is too small");
  const std::vector<size_t> starts = CodePointStarts(text);
  if (static_cast<int64_t>(starts.size()) - 1 <= length + leeway) return Value::String(text);
  std::string kept = text.substr(0, starts[static_cast<size_t>(length - end_length)]);
  if (!bound.Truth(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return Value::String(kept + end);
}

Result WordCount(Runtime& runtime, const Value& input, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("wordcount", arguments, {}));
  ASSIGN_OR_RETURN(const std::string text, runtime.ToText(input));
  int64_t count = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const int32_t c = NextCodePoint(text, &i);
    const bool is_word = c == '_' || IsAlpha(c) || IsDecimal(c);
    count += is_word && !in_word;
    in_word = is_word;
  }
  return Value::Int(count);
}

Result Format(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return TemplateError("can't handle positional and keyword arguments at the same time");
  }
  ASSIGN_OR_RETURN(std::string format, runtime.ToText(input));
  if (arguments.named.empty()) {
    return FormatPercent(runtime, Value::String(std::move(format)), Value::Tuple(arguments.positional));
  }
  Dict values;
  for (const auto& [name, value] : arguments.named) values.Set(name, value);
  return FormatPercent(runtime, Value::String(std::move(format)), Value::FromDict(std::move(values)));
}

// json.dumps(input, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
Result ToJsonFilter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound,
                   Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonOptions options;
  options.max_bytes = runtime.limits().max_output_bytes;
  options.ensure_ascii = bound.Truth(0, false);
  options.sort_keys = bound.Truth(3, false);
  if (const Value indent = bound.Get(1, Value::None()); indent.is_string()) {
    options.indent = indent.string();
  } else if (!indent.is_none()) {
    ASSIGN_OR_RETURN(const int64_t width, bound.Integer(1, 0));
    ASSIGN_OR_RETURN(options.indent, Pad(runtime, "", width, " ", '<'));
  }
  if (const Value separators = bound.Get(2, Value::None()); !separators.is_none()) {
    ASSIGN_OR_RETURN(const Value pair, Iterate(separators));
    if (pair.items().size() != 2 || !pair.items()[0].is_string() || !pair.items()[1].is_string()) {
      return TemplateError("tojson: separators must be two strings");
    }
    options.item_separator = pair.items()[0].string();
    options.key_separator = pair.items()[1].string();
  }
  ASSIGN_OR_RETURN(std::string json, ToJson(input, options));
  return Value::String(std::move(json));
}

constexpr NamedFilter kFilters[] = {
    {"upper", ChangeText<Upper>},
    {"lower", ChangeText<Lower>},
    {"capitalize", ChangeText<Capitalize>},
    {"title", ChangeText<TitleWords>},
    {"trim", Trim},
    {"replace", Replace},
    {"string", String},
    {"safe", Safe},
    {"escape", Escape<false>},
    {"e", Escape<false>},
    {"forceescape", Escape<true>},
    {"indent", Indent},
    {"center", Center},
    {"truncate", Truncate},
    {"wordcount", WordCount},
    {"format", Format},
    {"tojson", ToJsonFilter},
};

}  // namespace

std::span<const NamedFilter> TextFilters() { return kFilters; }

}  // namespace sluice::engine::jinja
