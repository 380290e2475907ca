#include "engine/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

// PCRE2's own \s also has U+180E.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Oniguruma's \w, measured: letters, marks, digits and connectors, the Latin-1 superscripts and fractions, and letters
// in circles and squares.
constexpr std::string_view kWordChars =
    R"(\p{L}\p{M}\p{Nl}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9})"
    R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

// The translation of one escape such as \s, or an error text in `problem`.
std::string TranslateEscape(char letter, bool in_class, std::string* problem) {
  const auto one_of = [&](std::string_view set) {
    return in_class ? std::string(set) : absl::StrCat("[", absl::string_view(set.data(), set.size()), "]");
  };
  const auto none_of = [&](std::string_view set) {
    if (in_class) *problem = absl::StrCat("\\", std::string(1, letter), " inside [...]");
    return absl::StrCat("[^", absl::string_view(set.data(), set.size()), "]");
  };
  switch (letter) {
    case 's':
      return one_of(kSpaces);
    case 'S':
      return one_of(R"(\S\x{180e})");
    case 'w':
      return one_of(kWordChars);
    case 'W':
      return none_of(kWordChars);
    case 'h':
      return one_of("0-9a-fA-F");
    case 'H':
      return none_of("0-9a-fA-F");
    default:
      return {'\\', letter};
  }
}

absl::StatusOr<std::string> TranslateFromOniguruma(std::string_view expression) {
  std::string out;
  std::string problem;
  bool in_class = false;
  for (size_t i = 0; i < expression.size() && problem.empty(); ++i) {
    const char c = expression[i];
    const std::string_view rest = expression.substr(i);
    if (c == '\\' && i + 1 < expression.size()) {
      out += TranslateEscape(expression[++i], in_class, &problem);
      continue;
    }
    if (in_class && c == '[' && rest.substr(0, 2) == "[:") {
      problem = "a POSIX class inside [...]";
    } else if (in_class && c == '[') {
      problem = "a class inside a class";
    } else if (in_class && rest.substr(0, 2) == "&&") {
      problem = "an intersection of classes";
    } else if (!in_class && c == '[') {
      in_class = true;
      out += c;
      if (rest.substr(1, 1) == "^") out += expression[++i];
      if (i + 1 < expression.size() && expression[i + 1] == ']') {
        out += R"(\])";
        ++i;
      }
      continue;
    } else if (in_class && c == ']') {
      in_class = false;
    } else if (!in_class && rest.substr(0, 2) == "(?") {
      const size_t flags_end = rest.find_first_not_of("imx-", 2);
      const std::string_view flags = rest.substr(2, flags_end == rest.npos ? rest.npos : flags_end - 2);
      if (flags.find('m') != flags.npos) problem = "the option m";
    }
    out += c;
  }
  if (!problem.empty()) return absl::InvalidArgumentError(absl::StrCat("not supported: ", problem, " in a pattern"));
  return out;
}

// Long runs of white space make the matcher backtrack far; Oniguruma has no limit there.
constexpr size_t kJitStackStart = 32 * 1024;
constexpr size_t kJitStackLimit = 256 * 1024 * 1024;

// What one thread needs to match: created at its first match, freed at its end.
struct MatchScratch {
  MatchScratch()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr)) {
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, UINT32_MAX);
  }
  ~MatchScratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

MatchScratch& ThreadScratch() {
  thread_local MatchScratch scratch;
  return scratch;
}

}  // namespace

struct Pattern::Compiled {
  ~Compiled() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

absl::StatusOr<Pattern> Pattern::Literal(std::string literal) {
  if (literal.empty()) return absl::InvalidArgumentError("an empty pattern matches everywhere");
  Pattern pattern;
  pattern.literal_ = std::move(literal);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::Regex(std::string_view expression) {
  if (expression.empty()) return absl::InvalidArgumentError("an empty pattern matches everywhere");
  ASSIGN_OR_RETURN(const std::string translated, TranslateFromOniguruma(expression));
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr);
  if (compiled->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof message);
    return absl::InvalidArgumentError(
        absl::StrCat("not a pattern we can read: ", reinterpret_cast<const char*>(message), " (at byte ", offset,
                     " of ", translated, ")"));
  }
  // Without JIT support on this machine the interpreter does the same, slower.
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  Pattern pattern;
  pattern.expression_ = std::string(expression);
  pattern.regex_ = std::move(compiled);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::FromJson(const JsonNode& node) {
  RETURN_IF_ERROR(node.HasOnlyKeys({"String", "Regex"}));
  const bool is_regex = !node.Child("Regex").is_null();
  const JsonNode text = node.Child(is_regex ? "Regex" : "String");
  ASSIGN_OR_RETURN(std::string value, text.AsString());
  absl::StatusOr<Pattern> pattern = is_regex ? Regex(value) : Literal(value);
  if (!pattern.ok()) return text.Error(std::string(pattern.status().message()));
  return pattern;
}

void Pattern::ForEachMatch(std::string_view text, absl::FunctionRef<void(size_t, size_t)> match) const {
  if (regex_ == nullptr) {
    for (size_t at = text.find(literal_); at != text.npos; at = text.find(literal_, at + literal_.size())) {
      match(at, at + literal_.size());
    }
    return;
  }
  MatchScratch& scratch = ThreadScratch();
  size_t position = 0;
  size_t last_end = text.npos;
  while (position <= text.size()) {
    const int found = pcre2_match(regex_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), position,
                                  PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
    // Errors other than "no match" mean that the pattern outgrew the stack limit: the rest counts as unmatched.
    if (found < 0) return;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data);
    const size_t begin = bounds[0];
    const size_t end = bounds[1];
    if (begin == end && end == last_end) {
      position += position < text.size() ? DecodeChar(text, position).length : 1;
      continue;
    }
    position = last_end = end;
    match(begin, end);
  }
}

}  // namespace sluice::engine
