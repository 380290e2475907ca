#include "engine/template/jinja/python_text.h"

#include <charconv>
#include <cmath>

#include "engine/template/jinja/errors.h"
#include "engine/template/jinja/unicode.h"

namespace sluice::engine::jinja {
namespace {

void AppendHex(int32_t number, int digits, std::string* out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out->push_back(kDigits[(number >> shift) & 15]);
}

void AppendStringRepr(std::string_view text, std::string* out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out->push_back(quote);
  for (size_t i = 0; i < text.size();) {
    const int32_t c = NextCodePoint(text, &i);
    if (c == quote || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (c < 0 || IsPrintable(c)) {
      AppendCodePoint(c, out);
    } else if (c < 0x100) {
      out->append("\\x");
      AppendHex(c, 2, out);
    } else if (c < 0x10000) {
      out->append("\\u");
      AppendHex(c, 4, out);
    } else {
      out->append("\\U");
      AppendHex(c, 8, out);
    }
  }
  out->push_back(quote);
}

class ReprWriter {
 public:
  ReprWriter(size_t max_bytes, std::string* out) : max_bytes_(max_bytes), out_(*out) {}

  void Write(const Value& value) {
    if (out_.size() > max_bytes_) return;
    switch (value.kind()) {
      case Value::Kind::kUndefined:
        out_.append("Undefined");
        return;
      case Value::Kind::kNone:
        out_.append("None");
        return;
      case Value::Kind::kBool:
        out_.append(value.bool_value() ? "True" : "False");
        return;
      case Value::Kind::kInt:
        out_.append(std::to_string(value.int_value()));
        return;
      case Value::Kind::kBigInt:
        out_.append(value.big_int_digits());
        return;
      case Value::Kind::kFloat:
        out_.append(FloatRepr(value.float_value()));
        return;
      case Value::Kind::kString:
        if (value.is_safe_string()) out_.append("Markup(");
        AppendStringRepr(value.string(), &out_);
        if (value.is_safe_string()) out_.append(")");
        return;
      case Value::Kind::kList:
        WriteSequence(value);
        return;
      case Value::Kind::kDict:
        WriteDict(value.dict());
        return;
      case Value::Kind::kObject:
        out_.append(Join("<", value.object().TypeName(), ">"));
        return;
    }
  }

 private:
  void WriteSequence(const Value& value) {
    const Sequence& sequence = value.sequence();
    switch (sequence.kind) {
      case SequenceKind::kList:
        WriteItems('[', sequence.items, ']');
        return;
      case SequenceKind::kTuple:
        WriteItems('(', sequence.items, ')');
        if (sequence.items.size() == 1) out_.insert(out_.size() - 1, ",");
        return;
      case SequenceKind::kRange:
        WriteRange(sequence.items);
        return;
      case SequenceKind::kGenerator:
        out_.append("<generator object>");
        return;
      default:
        out_.append(Join(TypeName(value), "("));
        WriteItems('[', sequence.items, ']');
        out_.push_back(')');
        return;
    }
  }

  // Only the numbers are kept, so the stop is what any range with these numbers could have had.
  void WriteRange(const std::vector<Value>& items) {
    if (items.empty()) {
      out_.append("range(0, 0)");
      return;
    }
    const int64_t first = items.front().int_value();
    const int64_t step = items.size() > 1 ? items[1].int_value() - first : 1;
    const int64_t stop = items.back().int_value() + step;
    out_.append(Join("range(", std::to_string(first), ", ", std::to_string(stop)));
    if (step != 1) out_.append(Join(", ", std::to_string(step)));
    out_.push_back(')');
  }

  void WriteItems(char open, const std::vector<Value>& items, char close) {
    out_.push_back(open);
    bool first = true;
    for (const Value& item : items) {
      if (out_.size() > max_bytes_) return;
      if (!first) out_.append(", ");
      first = false;
      Write(item);
    }
    out_.push_back(close);
  }

  void WriteDict(const Dict& dict) {
    out_.push_back('{');
    bool first = true;
    for (const auto& [key, value] : dict.items()) {
      if (out_.size() > max_bytes_) return;
      if (!first) out_.append(", ");
      first = false;
      Write(key);
      out_.append(": ");
      Write(value);
    }
    out_.push_back('}');
  }

  size_t max_bytes_;
  std::string& out_;
};

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(scientific.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* exponent_begin = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_begin, scientific.ptr, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  std::string digits;  // without sign and point: d[0].d[1]d[2]... * 10^exponent
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string out = text[0] == '-' ? "-" : "";
  if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
    return out;
  }
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string Repr(const Value& value, size_t max_bytes) {
  std::string out;
  ReprWriter(max_bytes, &out).Write(value);
  return out;
}

std::string Str(const Value& value, size_t max_bytes) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return "";
  return Repr(value, max_bytes);
}

}  // namespace sluice::engine::jinja
