#include "engine/tokenizer/pre_tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/split_behavior.h"
#include "engine/tokenizer/split_rules.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

using WordSink = absl::FunctionRef<void(const Piece&)>;

// Calls `done` with the piece, or with a copy that starts with `prefix` where the piece does not.
void WithPrefix(std::string_view prefix, const Piece& piece, WordSink done) {
  if (piece.text.empty() || piece.text.substr(0, prefix.size()) == prefix) return done(piece);
  AlignedText out(piece);
  out.Put(prefix, 0, DecodeChar(piece.text, 0).length);
  out.Keep(0, piece.text.size());
  done(out.piece());
}

class ByteLevelStep : public SplitStep {
 public:
  ByteLevelStep(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}
  void Split(const Piece& piece, WordSink word) const override {
    if (!add_prefix_space_) return SplitPrefixed(piece, word);
    WithPrefix(" ", piece, [&](const Piece& prefixed) { SplitPrefixed(prefixed, word); });
  }

 private:
  void SplitPrefixed(const Piece& piece, WordSink word) const {
    if (!use_regex_) return word(piece);
    ForEachPiece(SplitRule::kGpt2, piece.text, [&](size_t begin, size_t end) { word(piece.Sub(begin, end)); });
  }

  bool add_prefix_space_;
  bool use_regex_;
};

class RuleStep : public SplitStep {
 public:
  explicit RuleStep(SplitRule rule) : rule_(rule) {}
  void Split(const Piece& piece, WordSink word) const override {
    ForEachPiece(rule_, piece.text, [&](size_t begin, size_t end) { word(piece.Sub(begin, end)); });
  }

 private:
  SplitRule rule_;
};

class PatternStep : public SplitStep {
 public:
  PatternStep(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void Split(const Piece& piece, WordSink word) const override {
    std::vector<Span> spans;
    size_t covered = 0;
    pattern_.ForEachMatch(piece.text, [&](size_t begin, size_t end) {
      if (covered != begin) spans.push_back({covered, begin, invert_});
      spans.push_back({begin, end, !invert_});
      covered = end;
    });
    if (covered != piece.text.size()) spans.push_back({covered, piece.text.size(), invert_});
    ForEachWord(behavior_, spans, [&](size_t begin, size_t end) { word(piece.Sub(begin, end)); });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits at single characters of a class.
class CharClassStep : public SplitStep {
 public:
  CharClassStep(CharClass delimiters, SplitBehavior behavior) : delimiters_(delimiters), behavior_(behavior) {}
  void Split(const Piece& piece, WordSink word) const override {
    if (behavior_ == SplitBehavior::kIsolated) {
      ForEachSpan(piece.text, [&](const Span& span) { word(piece.Sub(span.begin, span.end)); });
      return;
    }
    std::vector<Span> spans;
    ForEachSpan(piece.text, [&](const Span& span) { spans.push_back(span); });
    ForEachWord(behavior_, spans, [&](size_t begin, size_t end) { word(piece.Sub(begin, end)); });
  }

 private:
  template <typename Sink>
  void ForEachSpan(std::string_view text, Sink sink) const {
    const CharClassTable& classes = CharClassTable::Get();
    size_t covered = 0;
    for (size_t at = 0; at < text.size();) {
      const DecodedChar c = DecodeChar(text, at);
      if (classes[c.code_point] & delimiters_) {
        if (covered < at) sink(Span{covered, at, false});
        sink(Span{at, at + c.length, true});
        covered = at + c.length;
      }
      at += c.length;
    }
    if (covered < text.size()) sink(Span{covered, text.size(), false});
  }

  CharClass delimiters_;
  SplitBehavior behavior_;
};

// \w+|[^\w\s]+
class WhitespaceStep : public SplitStep {
 public:
  void Split(const Piece& piece, WordSink word) const override {
    const CharClassTable& classes = CharClassTable::Get();
    const auto kind_at = [&](size_t at) {
      const uint16_t c = classes[DecodeChar(piece.text, at).code_point];
      return c & kWord ? kWord : c & kSpace ? kSpace : 0;
    };
    for (size_t at = 0; at < piece.text.size();) {
      const int kind = kind_at(at);
      size_t end = at;
      do {
        end += DecodeChar(piece.text, end).length;
      } while (end < piece.text.size() && kind_at(end) == kind);
      if (kind != kSpace) word(piece.Sub(at, end));
      at = end;
    }
  }
};

enum class PrependScheme { kFirst, kNever, kAlways };

// Writes spaces as the replacement mark, puts one in front, and makes each mark the start of a word.
class MetaspaceStep : public SplitStep {
 public:
  MetaspaceStep(std::string mark, PrependScheme scheme, bool split)
      : mark_(std::move(mark)), scheme_(scheme), split_(split) {}
  void Split(const Piece& piece, WordSink word) const override {
    AlignedText marked(piece);
    if (!piece.text.empty() && Prepends(piece)) marked.Put(mark_, 0, DecodeChar(piece.text, 0).length);
    size_t kept = 0;
    for (size_t at = piece.text.find(' '); at != piece.text.npos; at = piece.text.find(' ', at + 1)) {
      marked.Keep(kept, at);
      marked.Put(mark_, at, at + 1);
      kept = at + 1;
    }
    marked.Keep(kept, piece.text.size());
    SplitMarked(marked.piece(), word);
  }

 private:
  bool Prepends(const Piece& piece) const {
    const bool has_mark = piece.text[0] == ' ' || piece.text.substr(0, mark_.size()) == mark_;
    return !has_mark &&
           (scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_source_start));
  }

  void SplitMarked(const Piece& piece, WordSink word) const {
    if (!split_) return word(piece);
    size_t begin = 0;
    while (begin < piece.text.size()) {
      const size_t next = piece.text.find(mark_, begin + 1);
      const size_t end = next == piece.text.npos ? piece.text.size() : next;
      word(piece.Sub(begin, end));
      begin = end;
    }
  }

  std::string mark_;
  PrependScheme scheme_;
  bool split_;
};

using StepOr = absl::StatusOr<std::unique_ptr<const SplitStep>>;

StepOr ByteLevelFromJson(const JsonNode& node) {
  RETURN_IF_ERROR(node.HasOnlyKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  ASSIGN_OR_RETURN(const bool add_prefix_space, node.Bool("add_prefix_space"));
  ASSIGN_OR_RETURN(const bool use_regex, node.Bool("use_regex", true));
  return std::make_unique<const ByteLevelStep>(add_prefix_space, use_regex);
}

StepOr SplitFromJson(const JsonNode& node) {
  RETURN_IF_ERROR(node.HasOnlyKeys({"type", "pattern", "behavior", "invert"}));
  ASSIGN_OR_RETURN(const SplitBehavior behavior, SplitBehaviorFromJson(node.Child("behavior")));
  ASSIGN_OR_RETURN(const bool invert, node.Bool("invert"));
  ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(node.Child("pattern")));
  const std::optional<SplitRule> rule = SplitRuleFor(pattern.expression());
  // The rules' matches cover the text, so with these behaviours the words are the matches.
  if (rule && (behavior == SplitBehavior::kIsolated || (behavior == SplitBehavior::kRemoved && invert))) {
    return std::make_unique<const RuleStep>(*rule);
  }
  return std::make_unique<const PatternStep>(std::move(pattern), behavior, invert);
}

StepOr MetaspaceFromJson(const JsonNode& node) {
  RETURN_IF_ERROR(node.HasOnlyKeys({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
  ASSIGN_OR_RETURN(std::string mark, node.String("replacement"));
  if (mark.empty() || DecodeChar(mark, 0).length != mark.size()) {
    return node.Child("replacement").Error("expected one character");
  }
  PrependScheme scheme = PrependScheme::kAlways;
  if (!node.Child("prepend_scheme").is_null()) {
    ASSIGN_OR_RETURN(const std::string name, node.String("prepend_scheme"));
    if (name == "first") {
      scheme = PrependScheme::kFirst;
    } else if (name == "never") {
      scheme = PrependScheme::kNever;
    } else if (name != "always") {
      return node.Child("prepend_scheme")
          .NotSupported(absl::StrCat("\"", name, "\" (expected first, never or always)"));
    }
  }
  ASSIGN_OR_RETURN(const bool add_prefix_space, node.Bool("add_prefix_space", true));
  if (!add_prefix_space && scheme != PrependScheme::kNever) {
    return node.Child("add_prefix_space").Error("false does not go with the prepend_scheme (expected never)");
  }
  ASSIGN_OR_RETURN(const bool split, node.Bool("split", true));
  return std::make_unique<const MetaspaceStep>(std::move(mark), scheme, split);
}

StepOr StepFromJson(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::string type, node.String("type"));
  if (type == "ByteLevel") return ByteLevelFromJson(node);
  if (type == "Split") return SplitFromJson(node);
  if (type == "Metaspace") return MetaspaceFromJson(node);
  if (type == "Digits") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "individual_digits"}));
    ASSIGN_OR_RETURN(const bool individual, node.Bool("individual_digits"));
    return std::make_unique<const CharClassStep>(kNumeric,
                                                 individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "behavior"}));
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (!node.Child("behavior").is_null()) {
      ASSIGN_OR_RETURN(behavior, SplitBehaviorFromJson(node.Child("behavior")));
    }
    return std::make_unique<const CharClassStep>(kPunctuation, behavior);
  }
  if (type == "Whitespace") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type"}));
    return std::make_unique<const WhitespaceStep>();
  }
  if (type == "WhitespaceSplit") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type"}));
    return std::make_unique<const CharClassStep>(kSpace, SplitBehavior::kRemoved);
  }
  return node.Child("type").NotSupported(absl::StrCat(
      "\"", type,
      "\" (expected ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation or Sequence)"));
}

}  // namespace

absl::Status PreTokenizer::Add(const JsonNode& node) {
  if (!node.value().is_object()) return node.Error("expected an object");
  const JsonNode type = node.Child("type");
  if (type.value() == "Sequence") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "pretokenizers"}));
    ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, node.Child("pretokenizers").Elements());
    for (const JsonNode& element : elements) RETURN_IF_ERROR(Add(element));
    return absl::OkStatus();
  }
  if (byte_level_) return node.NotSupported("a step after ByteLevel");
  ASSIGN_OR_RETURN(std::unique_ptr<const SplitStep> step, StepFromJson(node));
  byte_level_ = type.value() == "ByteLevel";
  needs_source_start_ = needs_source_start_ || type.value() == "Metaspace";
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const JsonNode& node) {
  PreTokenizer result;
  if (!node.is_null()) RETURN_IF_ERROR(result.Add(node));
  return result;
}

void PreTokenizer::From(size_t step, const Piece& piece, WordSink word) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) return word(piece);
  steps_[step]->Split(piece, [&](const Piece& part) { From(step + 1, part, word); });
}

}  // namespace sluice::engine
