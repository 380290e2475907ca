#include "engine/template/jinja/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/status_macros.h"
#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/limits.h"
#include "engine/template/jinja/python_text.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  absl::StatusOr<Value> Read() {
    ASSIGN_OR_RETURN(Value value, ReadValue(0));
    SkipSpace();
    if (position_ != text_.size()) return Error("text after the end of the value");
    return value;
  }

 private:
  absl::Status Error(std::string_view what) const {
    return TemplateError("not valid JSON at byte ", std::to_string(position_), ": ", what);
  }

  bool AtEnd() const { return position_ == text_.size(); }

  void SkipSpace() {
    while (!AtEnd() && (text_[position_] == ' ' || text_[position_] == '\n' || text_[position_] == '\t' ||
                        text_[position_] == '\r')) {
      ++position_;
    }
  }

  bool Consume(std::string_view word) {
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }

  absl::StatusOr<Value> ReadValue(int depth) {
    if (depth > kMaxNesting) return Error("nested too deep");
    SkipSpace();
    if (AtEnd()) return Error("the text ends where a value should be");
    switch (text_[position_]) {
      case '{':
        return ReadDict(depth);
      case '[':
        return ReadList(depth);
      case '"': {
        ASSIGN_OR_RETURN(std::string text, ReadString());
        return Value::String(std::move(text));
      }
      case 't':
        if (Consume("true")) return Value::Bool(true);
        break;
      case 'f':
        if (Consume("false")) return Value::Bool(false);
        break;
      case 'n':
        if (Consume("null")) return Value::None();
        break;
      default:
        return ReadNumber();
    }
    return Error("expected a value");
  }

  absl::StatusOr<Value> ReadDict(int depth) {
    ++position_;
    Dict dict;
    SkipSpace();
    if (Consume("}")) return Value::FromDict(std::move(dict));
    while (true) {
      SkipSpace();
      if (AtEnd() || text_[position_] != '"') return Error("expected a key in double quotes");
      ASSIGN_OR_RETURN(std::string key, ReadString());
      SkipSpace();
      if (!Consume(":")) return Error("expected ':' after a key");
      ASSIGN_OR_RETURN(Value value, ReadValue(depth + 1));
      dict.Set(std::move(key), std::move(value));
      SkipSpace();
      if (Consume("}")) return Value::FromDict(std::move(dict));
      if (!Consume(",")) return Error("expected ',' or '}'");
    }
  }

  absl::StatusOr<Value> ReadList(int depth) {
    ++position_;
    std::vector<Value> items;
    SkipSpace();
    if (Consume("]")) return Value::List(std::move(items));
    while (true) {
      ASSIGN_OR_RETURN(Value value, ReadValue(depth + 1));
      items.push_back(std::move(value));
      SkipSpace();
      if (Consume("]")) return Value::List(std::move(items));
      if (!Consume(",")) return Error("expected ',' or ']'");
    }
  }

  bool IsDigitAt(size_t position) const {
    return position < text_.size() && text_[position] >= '0' && text_[position] <= '9';
  }

  void SkipDigits() {
    while (IsDigitAt(position_)) ++position_;
  }

  absl::StatusOr<Value> ReadNumber() {
    const size_t begin = position_;
    if (text_[position_] == '-') ++position_;
    if (!IsDigitAt(position_)) {
      position_ = begin;
      return Error("expected a value");
    }
    if (text_[position_] == '0') {
      ++position_;
    } else {
      SkipDigits();
    }
    bool is_float = false;
    if (!AtEnd() && text_[position_] == '.' && IsDigitAt(position_ + 1)) {
      is_float = true;
      ++position_;
      SkipDigits();
    }
    if (!AtEnd() && (text_[position_] == 'e' || text_[position_] == 'E')) {
      const size_t sign = position_ + 1 < text_.size() && (text_[position_ + 1] == '-' || text_[position_ + 1] == '+');
      if (IsDigitAt(position_ + 1 + sign)) {
        is_float = true;
        position_ += 1 + sign;
        SkipDigits();
      }
    }
    const std::string_view number = text_.substr(begin, position_ - begin);
    if (!is_float) return Value::Integer(number);
    double value = 0.0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error == std::errc::result_out_of_range) {  // Python reads 1e999 as inf and 1e-999 as 0.0
      value = std::strtod(std::string(number).c_str(), nullptr);
    }
    return Value::Float(value);
  }

  absl::StatusOr<int32_t> ReadHex4() {
    int32_t code_unit = 0;
    if (position_ + 4 > text_.size()) return Error("a \\u escape needs four hexadecimal digits");
    const char* begin = text_.data() + position_;
    const auto [end, error] = std::from_chars(begin, begin + 4, code_unit, 16);
    if (error != std::errc() || end != begin + 4 || *begin == '-') {
      return Error("a \\u escape needs four hexadecimal digits");
    }
    position_ += 4;
    return code_unit;
  }

  absl::Status ReadEscape(std::string* out) {
    if (AtEnd()) return Error("the text ends inside a string");
    const char c = text_[position_++];
    static constexpr std::string_view kEscapes = "\"\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t i = kEscapes.find(c); i != std::string_view::npos) {
      out->push_back(kMeanings[i]);
      return absl::OkStatus();
    }
    if (c != 'u') {
      --position_;
      return Error("unknown escape in a string");
    }
    ASSIGN_OR_RETURN(int32_t code_point, ReadHex4());
    if (code_point >= 0xD800 && code_point < 0xDC00 && text_.substr(position_, 2) == "\\u") {
      const size_t before_low = position_;
      position_ += 2;
      ASSIGN_OR_RETURN(const int32_t low, ReadHex4());
      if (low >= 0xDC00 && low < 0xE000) {
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
      } else {
        position_ = before_low;
      }
    }
    if (code_point >= 0xD800 && code_point < 0xE000) code_point = 0xFFFD;  // half a pair has no UTF-8
    AppendCodePoint(code_point, out);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadString() {
    ++position_;
    std::string out;
    while (true) {
      const size_t begin = position_;
      while (!AtEnd() && text_[position_] != '"' && text_[position_] != '\\' &&
             static_cast<unsigned char>(text_[position_]) >= 0x20) {
        ++position_;
      }
      out.append(text_.substr(begin, position_ - begin));
      if (AtEnd()) return Error("the text ends inside a string");
      if (text_[position_] == '"') {
        ++position_;
        return out;
      }
      if (text_[position_] != '\\') return Error("a control character must be escaped in a string");
      ++position_;
      RETURN_IF_ERROR(ReadEscape(&out));
    }
  }

  std::string_view text_;
  size_t position_ = 0;
};

class JsonWriter {
 public:
  JsonWriter(const JsonOptions& options, std::string* out)
      : options_(options),
        item_separator_(options.item_separator.value_or(options.indent.has_value() ? "," : ", ")),
        out_(*out) {}

  absl::Status Write(const Value& value, size_t depth) {
    if (out_.size() > options_.max_bytes) return TemplateError("the text of tojson is too long");
    if (depth > static_cast<size_t>(kMaxNesting)) return TemplateError("tojson: the value is nested too deep");
    switch (value.kind()) {
      case Value::Kind::kString:
        WriteString(value.string());
        return absl::OkStatus();
      case Value::Kind::kDict:
        return WriteDict(value.dict(), depth);
      case Value::Kind::kList:
        if (value.sequence().kind <= SequenceKind::kTuple) return WriteList(value.items(), depth);
        break;
      case Value::Kind::kUndefined:
      case Value::Kind::kObject:
        break;
      default:
        out_.append(Scalar(value));
        return absl::OkStatus();
    }
    return TemplateError("Object of type ", TypeName(value), " is not JSON serializable",
                         value.is_undefined() ? " (" + value.undefined_message() + ")" : "");
  }

 private:
  static std::string Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.bool_value() ? "true" : "false";
    if (value.kind() != Value::Kind::kFloat || std::isfinite(value.float_value())) return Str(value);
    if (std::isnan(value.float_value())) return "NaN";
    return value.float_value() < 0 ? "-Infinity" : "Infinity";
  }

  void NewLine(size_t depth) {
    if (!options_.indent.has_value()) return;
    out_.push_back('\n');
    for (size_t i = 0; i < depth; ++i) out_.append(*options_.indent);
  }

  absl::Status WriteList(const std::vector<Value>& items, size_t depth) {
    if (items.empty()) {
      out_.append("[]");
      return absl::OkStatus();
    }
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(item_separator_);
      NewLine(depth + 1);
      RETURN_IF_ERROR(Write(items[i], depth + 1));
    }
    NewLine(depth);
    out_.push_back(']');
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict, size_t depth) {
    if (dict.size() == 0) {
      out_.append("{}");
      return absl::OkStatus();
    }
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (options_.sort_keys) RETURN_IF_ERROR(SortByKey(&items));
    out_.push_back('{');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(item_separator_);
      NewLine(depth + 1);
      RETURN_IF_ERROR(WriteKey(items[i]->first));
      out_.append(options_.key_separator);
      RETURN_IF_ERROR(Write(items[i]->second, depth + 1));
    }
    NewLine(depth);
    out_.push_back('}');
    return absl::OkStatus();
  }

  static absl::Status SortByKey(std::vector<const std::pair<Value, Value>*>* items) {
    absl::Status status;
    std::stable_sort(items->begin(), items->end(), [&status](const auto* a, const auto* b) {
      const absl::StatusOr<bool> less = IsLess(a->first, b->first);
      if (!less.ok()) status = less.status();
      return less.ok() && *less;
    });
    return status;
  }

  absl::Status WriteKey(const Value& key) {
    if (key.is_string()) {
      WriteString(key.string());
    } else if (key.is_none() || key.is_number()) {
      WriteString(Scalar(key));
    } else {
      return TemplateError("keys must be str, int, float, bool or None, not ", TypeName(key));
    }
    return absl::OkStatus();
  }

  void WriteUnicodeEscape(int32_t code_unit) {
    static constexpr char kDigits[] = "0123456789abcdef";
    out_.append("\\u");
    for (int shift = 12; shift >= 0; shift -= 4) out_.push_back(kDigits[(code_unit >> shift) & 15]);
  }

  void WriteString(std::string_view text) {
    static constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kEscapes = "\"\\bfnrt";
    out_.push_back('"');
    for (size_t i = 0; i < text.size();) {
      const int32_t c = NextCodePoint(text, &i);
      const size_t escape = c < 0x80 && c >= 0 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
      if (escape != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kEscapes[escape]);
      } else if ((c >= 0 && c < 0x20) || (c == 0x7F && options_.ensure_ascii)) {
        WriteUnicodeEscape(c);
      } else if (c < 0x80 || !options_.ensure_ascii) {
        AppendCodePoint(c, &out_);
      } else if (c < 0x10000) {
        WriteUnicodeEscape(c);
      } else {
        WriteUnicodeEscape(0xD800 + ((c - 0x10000) >> 10));
        WriteUnicodeEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
      }
    }
    out_.push_back('"');
  }

  const JsonOptions& options_;
  const std::string item_separator_;
  std::string& out_;
};

}  // namespace

absl::StatusOr<Value> ParseJson(std::string_view text) { return JsonReader(text).Read(); }

absl::StatusOr<std::string> ToJson(const Value& value, const JsonOptions& options) {
  std::string out;
  RETURN_IF_ERROR(JsonWriter(options, &out).Write(value, 0));
  if (out.size() > options.max_bytes) return TemplateError("the text of tojson is too long");
  return out;
}

}  // namespace sluice::engine::jinja
