// Python's str methods. Positions and widths count code points.
#include <algorithm>
#include <optional>

#include "common/status_macros.h"
#include "engine/template/jinja/arguments.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/methods.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/python_format.h"
#include "engine/template/jinja/string_search.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

using Result = absl::StatusOr<Value>;

template <std::string (*kChange)(std::string_view)>
Result ChangeCase(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("str method", arguments, {}));
  return Value::String(kChange(self.string()));
}

std::string SwapCaseText(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const int32_t c = NextCodePoint(text, &i);
    const std::string_view character = text.substr(begin, i - begin);
    out.append(IsUpper(c) ? Lower(character) : Upper(character));
  }
  return out;
}

template <StripSide kSide>
Result StripMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("strip", arguments, {"chars"}));
  if (!bound.has(0) || bound[0].is_none()) return Value::String(std::string(Strip(self.string(), kSide)));
  ASSIGN_OR_RETURN(const std::string characters, bound.Text(0, ""));
  return Value::String(std::string(Strip(self.string(), kSide, &characters)));
}

// The pieces of split and rsplit. `maximum` < 0: no limit.
template <bool kFromRight>
Result SplitMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("split", arguments, {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(int64_t maximum, bound.Integer(1, -1));
  const auto limit = static_cast<int64_t>(runtime.limits().max_list_items);
  if (maximum < 0 || maximum > limit) maximum = limit;  // one more piece than allowed, and the check below fails
  std::vector<std::string> pieces;
  if (bound.Get(0, Value::None()).is_none()) {
    pieces = SplitAtSpace(self.string(), maximum, kFromRight);
  } else {
    ASSIGN_OR_RETURN(const std::string separator, bound.Text(0, ""));
    if (separator.empty()) return TemplateError("empty separator");
    pieces = SplitAt(self.string(), separator, maximum, kFromRight);
  }
  RETURN_IF_ERROR(runtime.CheckItems(pieces.size()));
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (std::string& piece : pieces) items.push_back(Value::String(std::move(piece)));
  return Value::List(std::move(items));
}

Result SplitLinesMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("splitlines", arguments, {"keepends"}));
  std::vector<Value> lines;
  for (std::string& line : SplitLines(self.string(), bound.Truth(0, false))) {
    lines.push_back(Value::String(std::move(line)));
  }
  return Value::List(std::move(lines));
}

template <bool kFromRight>
Result Partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("partition", arguments, {"sep"}, 1));
  ASSIGN_OR_RETURN(const std::string separator, bound.Text(0, ""));
  if (separator.empty()) return TemplateError("empty separator");
  const std::string& text = self.string();
  const size_t found = kFromRight ? text.rfind(separator) : text.find(separator);
  if (found == std::string::npos) {
    if (kFromRight) return Value::Tuple({Value::String(""), Value::String(""), self});
    return Value::Tuple({self, Value::String(""), Value::String("")});
  }
  return Value::Tuple({Value::String(text.substr(0, found)), Value::String(separator),
                       Value::String(text.substr(found + separator.size()))});
}

// The part of `self` from `start` to `stop` (arguments 1 and 2) as bytes, and where it begins in code points. Nothing
// where start is behind stop or the end: there even "" is not found.
struct Part {
  std::string_view text;
  int64_t first;
};
absl::StatusOr<std::optional<Part>> SelectPart(const Value& self, const BoundArguments& bound) {
  const std::string& text = self.string();
  const int64_t size = static_cast<int64_t>(CodePointCount(text));
  const auto position = [&](size_t parameter, int64_t otherwise) -> absl::StatusOr<int64_t> {
    if (bound.Get(parameter, Value::None()).is_none()) return otherwise;
    ASSIGN_OR_RETURN(const int64_t index, bound.Integer(parameter, otherwise));
    return index < 0 ? std::max<int64_t>(index + size, 0) : index;
  };
  ASSIGN_OR_RETURN(const int64_t start, position(1, 0));
  ASSIGN_OR_RETURN(int64_t stop, position(2, size));
  stop = std::min(stop, size);
  if (start > stop) return std::nullopt;
  const std::vector<size_t> starts = CodePointStarts(text);
  const size_t begin = starts[static_cast<size_t>(start)];
  return Part{std::string_view(text).substr(begin, starts[static_cast<size_t>(stop)] - begin), start};
}

// str.startswith and endswith: of one string or of any in a tuple.
template <bool kAtEnd>
Result StartsOrEndsWith(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const std::string_view name = kAtEnd ? "endswith" : "startswith";
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind(name, arguments, {"affix", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const std::optional<Part> part, SelectPart(self, bound));
  std::vector<Value> candidates = {bound[0]};
  if (bound[0].is_sequence_of(SequenceKind::kTuple)) candidates = bound[0].items();
  for (const Value& candidate : candidates) {
    if (!candidate.is_string()) {
      return TemplateError(name, " first arg must be str or a tuple of str, not ", TypeName(candidate));
    }
    if (!part.has_value()) continue;
    const std::string& affix = candidate.string();
    if (kAtEnd ? part->text.ends_with(affix) : part->text.starts_with(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

// str.find and its like: the position in code points, -1 where it is not there; `kMust` makes that an error.
template <bool kFromRight, bool kMust>
Result FindMethodOf(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("find", arguments, {"sub", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const std::string wanted, bound.Text(0, ""));
  ASSIGN_OR_RETURN(const std::optional<Part> part, SelectPart(self, bound));
  if (part.has_value()) {
    const size_t found = kFromRight ? part->text.rfind(wanted) : part->text.find(wanted);
    if (found != std::string_view::npos) {
      return Value::Int(part->first + static_cast<int64_t>(CodePointCount(part->text.substr(0, found))));
    }
  }
  if (kMust) return TemplateError("substring not found");
  return Value::Int(-1);
}

Result CountMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("count", arguments, {"sub", "start", "end"}, 1));
  ASSIGN_OR_RETURN(const std::string wanted, bound.Text(0, ""));
  ASSIGN_OR_RETURN(const std::optional<Part> part, SelectPart(self, bound));
  if (!part.has_value()) return Value::Int(0);
  if (wanted.empty()) return Value::Int(static_cast<int64_t>(CodePointCount(part->text)) + 1);
  return Value::Int(static_cast<int64_t>(SplitAt(part->text, wanted, -1, false).size()) - 1);
}

Result ReplaceMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("replace", arguments, {"old", "new", "count"}, 2));
  ASSIGN_OR_RETURN(const std::string from, bound.Text(0, ""));
  ASSIGN_OR_RETURN(const std::string to, bound.Text(1, ""));
  ASSIGN_OR_RETURN(const int64_t count, bound.Integer(2, -1));
  ASSIGN_OR_RETURN(std::string text, ReplaceText(runtime, self.string(), from, to, count));
  return Value::String(std::move(text));
}

Result JoinMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("join", arguments, {"iterable"}, 1));
  ASSIGN_OR_RETURN(const Value items, Iterate(bound[0]));
  std::string text;
  for (size_t i = 0; i < items.items().size(); ++i) {
    const Value& item = items.items()[i];
    if (!item.is_string()) {
      return TemplateError("sequence item ", std::to_string(i), ": expected str instance, ", TypeName(item), " found");
    }
    if (i > 0) text.append(self.string());
    text.append(item.string());
    RETURN_IF_ERROR(runtime.CheckBytes(text.size()));
  }
  return Value::String(std::move(text));
}

enum class Side { kLeft, kRight, kCenter };

template <Side kSide>
Result Justify(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("justify", arguments, {"width", "fillchar"}, 1));
  ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 0));
  ASSIGN_OR_RETURN(const std::string fill, bound.Text(1, " "));
  if (CodePointCount(fill) != 1) return TemplateError("The fill character must be exactly one character long");
  const char side = kSide == Side::kLeft ? '<' : kSide == Side::kRight ? '>' : 'c';
  ASSIGN_OR_RETURN(std::string text, Pad(runtime, self.string(), width, fill, side));
  return Value::String(std::move(text));
}

Result ZeroFill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("zfill", arguments, {"width"}, 1));
  ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 0));
  const std::string& text = self.string();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  ASSIGN_OR_RETURN(std::string digits, Pad(runtime, text.substr(sign), width - static_cast<int64_t>(sign), "0", '>'));
  return Value::String(text.substr(0, sign) + digits);
}

template <bool kSuffix>
Result RemoveAffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const BoundArguments bound, Bind("remove", arguments, {"affix"}, 1));
  ASSIGN_OR_RETURN(const std::string affix, bound.Text(0, ""));
  const std::string& text = self.string();
  if (affix.empty() || !(kSuffix ? text.ends_with(affix) : text.starts_with(affix))) return self;
  return Value::String(kSuffix ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size()));
}

// str.isalpha and its like: all characters are, and there is one.
template <bool (*kIs)(int32_t)>
Result AllCharacters(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("str method", arguments, {}));
  const std::string& text = self.string();
  for (size_t i = 0; i < text.size();) {
    if (!kIs(NextCodePoint(text, &i))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool IsAlphaOrDigit(int32_t c) { return IsAlpha(c) || IsDecimal(c); }

// str.isupper and islower: a cased letter, and none of the other case.
template <bool (*kWanted)(int32_t), bool (*kOther)(int32_t)>
Result HasCase(Runtime& runtime, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind("str method", arguments, {}));
  const std::string& text = self.string();
  bool found = false;
  for (size_t i = 0; i < text.size();) {
    const int32_t c = NextCodePoint(text, &i);
    if (kOther(c)) return Value::Bool(false);
    found |= kWanted(c);
  }
  return Value::Bool(found);
}

Result FormatMethod(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return FormatBraces(runtime, self.string(), arguments);
}

struct NamedMethod {
  std::string_view name;
  MethodFunction function;
};

constexpr NamedMethod kMethods[] = {
    {"strip", StripMethod<StripSide::kBoth>},
    {"lstrip", StripMethod<StripSide::kLeft>},
    {"rstrip", StripMethod<StripSide::kRight>},
    {"split", SplitMethod<false>},
    {"rsplit", SplitMethod<true>},
    {"startswith", StartsOrEndsWith<false>},
    {"endswith", StartsOrEndsWith<true>},
    {"replace", ReplaceMethod},
    {"upper", ChangeCase<Upper>},
    {"lower", ChangeCase<Lower>},
    {"casefold", ChangeCase<Lower>},
    {"title", ChangeCase<Title>},
    {"capitalize", ChangeCase<Capitalize>},
    {"swapcase", ChangeCase<SwapCaseText>},
    {"splitlines", SplitLinesMethod},
    {"partition", Partition<false>},
    {"rpartition", Partition<true>},
    {"find", FindMethodOf<false, false>},
    {"rfind", FindMethodOf<true, false>},
    {"index", FindMethodOf<false, true>},
    {"rindex", FindMethodOf<true, true>},
    {"count", CountMethod},
    {"join", JoinMethod},
    {"ljust", Justify<Side::kLeft>},
    {"rjust", Justify<Side::kRight>},
    {"center", Justify<Side::kCenter>},
    {"zfill", ZeroFill},
    {"removeprefix", RemoveAffix<false>},
    {"removesuffix", RemoveAffix<true>},
    {"isalpha", AllCharacters<IsAlpha>},
    {"isdigit", AllCharacters<IsDecimal>},
    {"isdecimal", AllCharacters<IsDecimal>},
    {"isnumeric", AllCharacters<IsDecimal>},
    {"isalnum", AllCharacters<IsAlphaOrDigit>},
    {"isspace", AllCharacters<IsSpace>},
    {"isupper", HasCase<IsUpper, IsLower>},
    {"islower", HasCase<IsLower, IsUpper>},
    {"format", FormatMethod},
};

}  // namespace

MethodFunction FindStringMethod(std::string_view name) {
  for (const NamedMethod& method : kMethods) {
    if (method.name == name) return method.function;
  }
  return nullptr;
}

}  // namespace sluice::engine::jinja
