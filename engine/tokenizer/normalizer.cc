#include "engine/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/tokenizer/char_class.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/unicode_form.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

using Done = absl::FunctionRef<void(const Piece&)>;

class FormNormalizer : public Normalizer {
 public:
  explicit FormNormalizer(UnicodeForm form) : form_(form) {}
  void Normalize(const Piece& piece, Done done) const override {
    if (IsSurelyInForm(form_, piece.text)) return done(piece);
    AlignedText out(piece);
    AppendInForm(form_, piece.text, &out);
    done(out.piece());
  }

 private:
  UnicodeForm form_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void Normalize(const Piece& piece, Done done) const override {
    if (piece.text.empty()) return done(piece);
    AlignedText out(piece);
    out.Put(prefix_, 0, DecodeChar(piece.text, 0).length);
    out.Keep(0, piece.text.size());
    done(out.piece());
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Normalize(const Piece& piece, Done done) const override {
    AlignedText out(piece);
    size_t kept = 0;
    pattern_.ForEachMatch(piece.text, [&](size_t begin, size_t end) {
      out.Keep(kept, begin);
      // An insertion at an empty match belongs to the character before it, or to the first one.
      if (begin < end) {
        out.Put(content_, begin, end);
      } else if (!piece.text.empty()) {
        out.Put(content_, begin > 0 ? begin - 1 : 0, begin > 0 ? begin : 1);
      }
      kept = end;
    });
    out.Keep(kept, piece.text.size());
    done(out.piece());
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Character by character (no final sigma), as the library does.
class LowercaseNormalizer : public Normalizer {
 public:
  void Normalize(const Piece& piece, Done done) const override {
    AlignedText out(piece);
    std::string lower;
    for (size_t at = 0; at < piece.text.size();) {
      const DecodedChar c = DecodeChar(piece.text, at);
      lower.clear();
      AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point))), &lower);
      if (c.code_point == 0x130) lower = "i\xCC\x87";  // the one character whose lower case is two (SpecialCasing.txt)
      out.Put(lower, at, at + c.length);
      at += c.length;
    }
    done(out.piece());
  }
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void Normalize(const Piece& piece, Done done) const override {
    size_t begin = 0;
    size_t end = piece.text.size();
    while (left_ && begin < end) {
      const DecodedChar c = DecodeChar(piece.text, begin);
      if (!HasClass(c.code_point, kSpace)) break;
      begin += c.length;
    }
    while (right_ && begin < end) {
      const size_t last = PreviousChar(piece.text, end);
      if (!HasClass(DecodeChar(piece.text, last).code_point, kSpace)) break;
      end = last;
    }
    Piece stripped = piece.Sub(begin, end);
    stripped.at_source_start = piece.at_source_start && begin == 0;
    done(stripped);
  }

 private:
  bool left_;
  bool right_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<const Normalizer>> steps) : steps_(std::move(steps)) {}
  void Normalize(const Piece& piece, Done done) const override { From(0, piece, done); }

 private:
  void From(size_t step, const Piece& piece, Done done) const {
    if (step == steps_.size()) return done(piece);
    steps_[step]->Normalize(piece, [&](const Piece& next) { From(step + 1, next, done); });
  }

  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Normalizer>> Normalizer::FromJson(const JsonNode& node) {
  using Result = std::unique_ptr<const Normalizer>;
  if (node.is_null()) return Result(nullptr);
  if (!node.value().is_object()) return node.Error("expected an object or null");
  ASSIGN_OR_RETURN(const std::string type, node.String("type"));
  constexpr std::pair<std::string_view, UnicodeForm> kForms[] = {{"NFC", UnicodeForm::kNfc},
                                                                 {"NFD", UnicodeForm::kNfd},
                                                                 {"NFKC", UnicodeForm::kNfkc},
                                                                 {"NFKD", UnicodeForm::kNfkd}};
  for (const auto& [name, form] : kForms) {
    if (type != name) continue;
    RETURN_IF_ERROR(node.HasOnlyKeys({"type"}));
    return Result(new FormNormalizer(form));
  }
  if (type == "Lowercase") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type"}));
    return Result(new LowercaseNormalizer);
  }
  if (type == "Prepend") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "prepend"}));
    ASSIGN_OR_RETURN(std::string prefix, node.String("prepend"));
    return Result(new PrependNormalizer(std::move(prefix)));
  }
  if (type == "Replace") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "pattern", "content"}));
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(node.Child("pattern")));
    ASSIGN_OR_RETURN(std::string content, node.String("content"));
    return Result(new ReplaceNormalizer(std::move(pattern), std::move(content)));
  }
  if (type == "Strip") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "strip_left", "strip_right"}));
    ASSIGN_OR_RETURN(const bool left, node.Bool("strip_left"));
    ASSIGN_OR_RETURN(const bool right, node.Bool("strip_right"));
    return Result(new StripNormalizer(left, right));
  }
  if (type == "Sequence") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "normalizers"}));
    ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, node.Child("normalizers").Elements());
    std::vector<std::unique_ptr<const Normalizer>> steps;
    for (const JsonNode& element : elements) {
      ASSIGN_OR_RETURN(Result step, FromJson(element));
      if (step == nullptr) return element.Error("expected an object");
      steps.push_back(std::move(step));
    }
    return Result(new SequenceNormalizer(std::move(steps)));
  }
  return node.Child("type").NotSupported(
      absl::StrCat("\"", type, "\" (expected NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip or Sequence)"));
}

}  // namespace sluice::engine
