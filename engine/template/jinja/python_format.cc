#include "engine/template/jinja/python_format.h"

#include <charconv>
#include <optional>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/format_spec.h"
#include "engine/template/jinja/operators.h"
#include "engine/template/jinja/python_text.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

constexpr int64_t kMaxWidth = 1'000'000;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Reads digits at *position; -1 where there are none.
absl::StatusOr<int64_t> ReadNumber(std::string_view text, size_t* position) {
  if (*position >= text.size() || !IsDigit(text[*position])) return -1;
  int64_t number = 0;
  for (; *position < text.size() && IsDigit(text[*position]); ++*position) {
    number = number * 10 + (text[*position] - '0');
    if (number > kMaxWidth) return TemplateError("too many decimal digits in format string");
  }
  return number;
}

// ---- % ----

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view format, const Value& values)
      : runtime_(runtime), format_(format), values_(values), is_tuple_(values.is_sequence_of(SequenceKind::kTuple)) {}

  absl::StatusOr<Value> Run() {
    std::string out;
    while (position_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', position_), format_.size());
      out.append(format_.substr(position_, percent - position_));
      position_ = percent + 1;
      if (percent < format_.size()) RETURN_IF_ERROR(FormatOne(&out));
      RETURN_IF_ERROR(runtime_.CheckBytes(out.size()));
    }
    const bool all_used = values_.is_dict() || (is_tuple_ ? used_ == values_.items().size() : used_ == 1);
    if (!all_used) return TemplateError("not all arguments converted during string formatting");
    return Value::String(std::move(out));
  }

 private:
  absl::StatusOr<Value> NextValue() {
    if (!is_tuple_ && used_ == 0) {
      ++used_;
      return values_;
    }
    if (is_tuple_ && used_ < values_.items().size()) return values_.items()[used_++];
    return TemplateError("not enough arguments for format string");
  }

  absl::StatusOr<std::optional<Value>> ReadName() {
    if (position_ >= format_.size() || format_[position_] != '(') return std::nullopt;
    const size_t end = format_.find(')', position_);
    if (end == std::string_view::npos) return TemplateError("incomplete format key");
    if (!values_.is_dict()) return TemplateError("format requires a mapping");
    const std::string_view name = format_.substr(position_ + 1, end - position_ - 1);
    const Value* found = values_.dict().Find(name);
    if (found == nullptr) return TemplateError("no key '", name, "' for the format string");
    position_ = end + 1;
    return *found;
  }

  void ReadFlags(FormatSpec* spec) {
    for (; position_ < format_.size(); ++position_) {
      const char flag = format_[position_];
      if (flag == '-') {
        spec->align = '<';
      } else if (flag == '+' || (flag == ' ' && spec->sign != '+')) {
        spec->sign = flag;
      } else if (flag == '#') {
        spec->alternate = true;
      } else if (flag == '0') {
        spec->fill = "0";
      } else if (flag != ' ') {
        return;
      }
    }
  }

  absl::Status FormatOne(std::string* out) {
    FormatSpec spec;
    ASSIGN_OR_RETURN(std::optional<Value> named, ReadName());
    ReadFlags(&spec);
    ASSIGN_OR_RETURN(const int64_t width, ReadNumber(format_, &position_));
    spec.width = std::max<int64_t>(width, 0);
    if (position_ < format_.size() && format_[position_] == '.') {
      ++position_;
      ASSIGN_OR_RETURN(const int64_t precision, ReadNumber(format_, &position_));
      spec.precision = std::max<int64_t>(precision, 0);
    }
    if (position_ >= format_.size()) return TemplateError("incomplete format");
    const char type = format_[position_++];
    if (type == '%') {
      out->push_back('%');
      return absl::OkStatus();
    }
    if (!named.has_value()) {
      ASSIGN_OR_RETURN(named, NextValue());
    }
    ASSIGN_OR_RETURN(const std::string field, FormatTyped(*named, type, std::move(spec)));
    out->append(field);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> FormatTyped(const Value& value, char type, FormatSpec spec) {
    const bool fills_zeros = spec.fill == "0" && spec.align == '\0';
    if (spec.align == '<') spec.fill = " ";
    if (type == 's' || type == 'r' || type == 'c') {
      spec.fill = " ";
      if (spec.align == '\0') spec.align = '>';
      if (type == 'c' && value.is_integer()) return TemplateError("%c of an integer is not supported");
      spec.type = 's';
      return FormatField(runtime_, type == 'r' ? Value::String(Repr(value)) : value, spec);
    }
    if (fills_zeros) spec.align = '=';
    const bool is_integer_type = type == 'd' || type == 'i' || type == 'u';
    if (is_integer_type && value.kind() == Value::Kind::kFloat) {
      spec.type = 'd';
      return FormatField(runtime_, Value::Int(static_cast<int64_t>(value.float_value())), spec);
    }
    static constexpr std::string_view kTypes = "dioxXfFeEgGu";
    if (kTypes.find(type) == std::string_view::npos) {
      return TemplateError("unsupported format character '", std::string(1, type), "'");
    }
    spec.type = is_integer_type ? 'd' : type;
    return FormatField(runtime_, value, spec);
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& values_;
  const bool is_tuple_;
  size_t position_ = 0;
  size_t used_ = 0;
};

// ---- {} ----

absl::StatusOr<FormatSpec> ParseSpec(std::string_view text) {
  FormatSpec spec;
  size_t i = 0;
  const auto is_align = [&](size_t at) {
    return at < text.size() && (text[at] == '<' || text[at] == '>' || text[at] == '^' || text[at] == '=');
  };
  size_t after_first = 0;
  if (!text.empty()) NextCodePoint(text, &after_first);
  if (after_first > 0 && is_align(after_first)) {
    spec.fill = std::string(text.substr(0, after_first));
    spec.align = text[after_first];
    i = after_first + 1;
  } else if (is_align(0)) {
    spec.align = text[0];
    i = 1;
  }
  if (i < text.size() && (text[i] == '+' || text[i] == '-' || text[i] == ' ')) spec.sign = text[i++];
  if (i < text.size() && text[i] == '#') {
    spec.alternate = true;
    ++i;
  }
  if (i < text.size() && text[i] == '0') {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    ++i;
  }
  ASSIGN_OR_RETURN(const int64_t width, ReadNumber(text, &i));
  spec.width = std::max<int64_t>(width, 0);
  if (i < text.size() && text[i] == ',') {
    spec.thousands = true;
    ++i;
  }
  if (i < text.size() && text[i] == '.') {
    ++i;
    ASSIGN_OR_RETURN(spec.precision, ReadNumber(text, &i));
    if (spec.precision < 0) return TemplateError("Format specifier missing precision");
  }
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size()) return TemplateError("Invalid format specifier '", text, "'");
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, std::string_view format, const Arguments& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {}

  absl::StatusOr<Value> Run() {
    std::string out;
    for (size_t i = 0; i < format_.size();) {
      const char c = format_[i];
      if ((c == '{' || c == '}') && i + 1 < format_.size() && format_[i + 1] == c) {
        out.push_back(c);
        i += 2;
      } else if (c == '{') {
        const size_t end = format_.find('}', i);
        if (end == std::string_view::npos) return TemplateError("expected '}' before end of string");
        ASSIGN_OR_RETURN(const std::string field, Field(format_.substr(i + 1, end - i - 1)));
        out.append(field);
        i = end + 1;
      } else if (c == '}') {
        return TemplateError("Single '}' encountered in format string");
      } else {
        out.push_back(c);
        ++i;
      }
      RETURN_IF_ERROR(runtime_.CheckBytes(out.size()));
    }
    return Value::String(std::move(out));
  }

 private:
  // name!conversion:spec
  absl::StatusOr<std::string> Field(std::string_view field) {
    const size_t colon = std::min(field.find(':'), field.size());
    ASSIGN_OR_RETURN(const FormatSpec spec, ParseSpec(colon < field.size() ? field.substr(colon + 1) : ""));
    std::string_view name = field.substr(0, colon);
    const size_t bang = name.find('!');
    const std::string_view conversion = bang == std::string_view::npos ? "" : name.substr(bang + 1);
    name = name.substr(0, bang);
    ASSIGN_OR_RETURN(Value value, LookUp(name));
    if (conversion == "r") value = Value::String(Repr(value));
    if (conversion == "s") {
      ASSIGN_OR_RETURN(std::string text, runtime_.ToText(value));
      value = Value::String(std::move(text));
    }
    return FormatField(runtime_, value, spec);
  }

  // first.attribute[key]...
  absl::StatusOr<Value> LookUp(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    ASSIGN_OR_RETURN(Value value, First(name.substr(0, first_end)));
    for (std::string_view rest = name.substr(first_end); !rest.empty();) {
      const bool is_attribute = rest[0] == '.';
      const size_t end = is_attribute ? std::min(rest.find_first_of(".[", 1), rest.size()) : rest.find(']');
      if (end == std::string_view::npos) return TemplateError("Missing ']' in format string");
      const std::string key(rest.substr(1, end - 1));
      const bool is_index = !key.empty() && key.find_first_not_of("0123456789") == std::string::npos;
      if (is_attribute) {
        ASSIGN_OR_RETURN(value, GetAttribute(value, key));
      } else {
        ASSIGN_OR_RETURN(value, GetItem(value, is_index ? Value::Integer(key) : Value::String(key)));
      }
      rest.remove_prefix(is_attribute ? end : end + 1);
    }
    return value;
  }

  absl::StatusOr<Value> First(std::string_view name) {
    const bool is_index = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_index) {
      for (const auto& [argument, value] : arguments_.named) {
        if (argument == name) return value;
      }
      return TemplateError("no argument '", name, "' for the format string");
    }
    size_t index = next_;
    if (name.empty()) {
      ++next_;
    } else {
      std::from_chars(name.data(), name.data() + name.size(), index);
    }
    if (index < arguments_.positional.size()) return arguments_.positional[index];
    return TemplateError("Replacement index ", std::to_string(index), " out of range for positional args tuple");
  }

  Runtime& runtime_;
  std::string_view format_;
  const Arguments& arguments_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Value& format, const Value& values) {
  return PercentFormatter(runtime, format.string(), values).Run();
}

absl::StatusOr<Value> FormatBraces(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  return BraceFormatter(runtime, format, arguments).Run();
}

}  // namespace sluice::engine::jinja
