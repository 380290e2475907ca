#include "engine/tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/pattern.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

class PassingStage : public DecodeStage {
 public:
  explicit PassingStage(DecodeStage* next) : next_(next) {}
  void Flush() override { next_->Flush(); }

 protected:
  void Pass(std::string_view piece) { next_->Push(piece); }

 private:
  DecodeStage* next_;
};

// Joins all pieces to one string. The steps after it get it in parts, which is all there is to do.
class FuseStage : public PassingStage {
 public:
  using PassingStage::PassingStage;
  void Push(std::string_view piece) override { Pass(piece); }
};

// Holds the whole string until the end, for steps that cannot work on parts of it.
class HoldStage : public PassingStage {
 public:
  using PassingStage::PassingStage;
  void Push(std::string_view piece) override { held_.append(piece); }
  void Flush() override {
    Pass(held_);
    PassingStage::Flush();
  }

 private:
  std::string held_;
};

class JoinWithSpacesStage : public PassingStage {
 public:
  using PassingStage::PassingStage;
  void Push(std::string_view piece) override {
    if (!first_) Pass(" ");
    first_ = false;
    Pass(piece);
  }

 private:
  bool first_ = true;
};

// Bytes to text; each maximal subpart that is not UTF-8 becomes one U+FFFD.
class BytesStage : public PassingStage {
 public:
  using PassingStage::PassingStage;
  void Push(std::string_view bytes) override {
    held_.append(bytes);
    size_t shown = 0;
    while (shown < held_.size()) {
      const std::string_view rest = std::string_view(held_).substr(shown);
      const size_t valid = ValidUtf8Prefix(rest);
      if (valid > 0) Pass(rest.substr(0, valid));
      shown += valid;
      if (valid == rest.size()) break;
      const Utf8ScanResult next = ScanUtf8(held_, shown);
      if (next.kind == Utf8Scan::kIncomplete) break;
      Pass(kReplacementCharacter);
      shown += next.length;
    }
    held_.erase(0, shown);
  }
  void Flush() override {
    if (!held_.empty()) Pass(kReplacementCharacter);
    PassingStage::Flush();
  }

 private:
  std::string held_;  // the start of a character
};

// ByteLevel after other steps: letters to bytes, then as BytesStage.
class LettersStage : public BytesStage {
 public:
  using BytesStage::BytesStage;
  void Push(std::string_view piece) override { BytesStage::Push(BytesOfLetters(piece).value_or(std::string(piece))); }
};

// Pieces "<0x41>" to bytes. Whether a run of them is text shows only at its end: if it is not UTF-8 as a whole, each of
// its bytes becomes U+FFFD.
class ByteFallbackStage : public PassingStage {
 public:
  using PassingStage::PassingStage;
  void Push(std::string_view piece) override {
    const int byte = ByteOf(piece);
    if (byte >= 0) {
      run_.push_back(static_cast<char>(byte));
      return;
    }
    EndRun();
    Pass(piece);
  }
  void Flush() override {
    EndRun();
    PassingStage::Flush();
  }

 private:
  static int ByteOf(std::string_view piece) {
    if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
    // Rust's from_str_radix, which the reference uses, takes a sign before one digit.
    const int low = HexDigit(piece[4]);
    const int high = piece[3] == '+' ? 0 : HexDigit(piece[3]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
  }
  static int HexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }
  void EndRun() {
    if (run_.empty()) return;
    if (ValidUtf8Prefix(run_) == run_.size()) {
      Pass(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) Pass(kReplacementCharacter);
    }
    run_.clear();
  }

  std::string run_;
};

class ReplaceStage : public PassingStage {
 public:
  ReplaceStage(DecodeStage* next, Pattern pattern, std::string content)
      : PassingStage(next), pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Push(std::string_view piece) override {
    std::string out;
    size_t kept = 0;
    pattern_.ForEachMatch(piece, [&](size_t begin, size_t end) {
      out.append(piece.substr(kept, begin - kept)).append(content_);
      kept = end;
    });
    out.append(piece.substr(kept));
    Pass(out);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Marks to spaces; the marks of the first piece vanish if encoding put one there.
class MetaspaceStage : public PassingStage {
 public:
  MetaspaceStage(DecodeStage* next, std::string mark, bool drop_in_first)
      : PassingStage(next), mark_(std::move(mark)), drop_(drop_in_first) {}
  void Push(std::string_view piece) override {
    std::string out;
    size_t kept = 0;
    for (size_t at = piece.find(mark_); at != piece.npos; at = piece.find(mark_, kept)) {
      out.append(piece.substr(kept, at - kept));
      if (!drop_) out.push_back(' ');
      kept = at + mark_.size();
    }
    out.append(piece.substr(kept));
    drop_ = false;
    Pass(out);
  }

 private:
  std::string mark_;
  bool drop_;
};

struct StripOptions {
  std::string character;
  int32_t start;
  int32_t stop;
};

// Drops up to `start` and `stop` characters from the ends of each piece.
class StripStage : public PassingStage {
 public:
  StripStage(DecodeStage* next, StripOptions options) : PassingStage(next), options_(std::move(options)) {}
  void Push(std::string_view piece) override {
    const std::string& c = options_.character;
    for (int32_t i = 0; i < options_.start && piece.substr(0, c.size()) == c; ++i) piece.remove_prefix(c.size());
    for (int32_t i = 0; i < options_.stop && piece.size() >= c.size() && piece.ends_with(c); ++i)
      piece.remove_suffix(c.size());
    Pass(piece);
  }

 private:
  StripOptions options_;
};

// The same on the fused string, of which it sees parts: drops at its start, holds back what may be its end.
class StripFusedStage : public PassingStage {
 public:
  StripFusedStage(DecodeStage* next, StripOptions options) : PassingStage(next), options_(std::move(options)) {}
  void Push(std::string_view piece) override {
    const std::string& c = options_.character;
    while (at_start_ && !piece.empty()) {
      at_start_ = dropped_ < options_.start && piece.substr(0, c.size()) == c;
      if (!at_start_) break;
      piece.remove_prefix(c.size());
      ++dropped_;
    }
    held_.append(piece);
    size_t shown = held_.size();
    for (int32_t i = 0; i < options_.stop && std::string_view(held_).substr(0, shown).ends_with(c); ++i)
      shown -= c.size();
    if (shown > 0) Pass(std::string_view(held_).substr(0, shown));
    held_.erase(0, shown);
  }

 private:
  StripOptions options_;
  bool at_start_ = true;
  int32_t dropped_ = 0;
  std::string held_;  // dropped if nothing follows
};

}  // namespace

class DecodeRun::Output : public DecodeStage {
 public:
  explicit Output(std::string* text) : text_(text) {}
  void Push(std::string_view piece) override { text_->append(piece); }
  void Flush() override {}

 private:
  std::string* text_;
};

void DecodeRun::Push(std::string_view piece, std::string* out) {
  stages_.back()->Push(piece);
  out->append(*text_);
  text_->clear();
}

void DecodeRun::Flush(std::string* out) {
  stages_.back()->Flush();
  out->append(*text_);
  text_->clear();
}

DecodeRun DecoderChain::Start() const {
  DecodeRun run;
  run.stages_.push_back(std::make_unique<DecodeRun::Output>(run.text_.get()));
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    run.stages_.push_back((*step)(run.stages_.back().get()));
  }
  return run;
}

std::string DecoderChain::Prepare(std::string_view piece) const {
  if (!starts_with_byte_level_) return std::string(piece);
  return BytesOfLetters(piece).value_or(std::string(piece));
}

// Reads the steps. Once the pieces are fused, a step sees parts of one string instead of pieces.
struct DecoderChain::Build {
  std::vector<MakeStage> steps;
  bool fused = false;
  bool starts_with_byte_level = false;

  template <typename Stage, typename... Args>
  void Append(const Args&... args) {
    steps.push_back([args...](DecodeStage* next) { return std::make_unique<Stage>(next, args...); });
  }
  void HoldIfFused() {
    if (fused) Append<HoldStage>();
  }

  absl::Status Add(const JsonNode& node) {
    if (!node.value().is_object()) return node.Error("expected an object");
    ASSIGN_OR_RETURN(const std::string type, node.String("type"));
    if (type == "Sequence") return AddSequence(node);
    if (type == "ByteLevel") return AddByteLevel(node);
    if (type == "Replace") return AddReplace(node);
    if (type == "Strip") return AddStrip(node);
    if (type == "Metaspace") return AddMetaspace(node);
    if (type == "Fuse" || type == "ByteFallback") {
      RETURN_IF_ERROR(node.HasOnlyKeys({"type"}));
      if (type == "Fuse") {
        Append<FuseStage>();
        fused = true;
      } else {
        HoldIfFused();
        Append<ByteFallbackStage>();
      }
      return absl::OkStatus();
    }
    return node.Child("type").NotSupported(
        absl::StrCat("\"", type, "\" (expected ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace or Sequence)"));
  }

  absl::Status AddSequence(const JsonNode& node) {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "decoders"}));
    ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, node.Child("decoders").Elements());
    for (const JsonNode& element : elements) RETURN_IF_ERROR(Add(element));
    return absl::OkStatus();
  }

  absl::Status AddByteLevel(const JsonNode& node) {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    if (steps.empty()) {
      starts_with_byte_level = true;
      Append<BytesStage>();
    } else {
      HoldIfFused();
      Append<LettersStage>();
    }
    fused = true;
    return absl::OkStatus();
  }

  absl::Status AddReplace(const JsonNode& node) {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "pattern", "content"}));
    ASSIGN_OR_RETURN(const Pattern pattern, Pattern::FromJson(node.Child("pattern")));
    ASSIGN_OR_RETURN(const std::string content, node.String("content"));
    HoldIfFused();
    Append<ReplaceStage>(pattern, content);
    return absl::OkStatus();
  }

  absl::Status AddStrip(const JsonNode& node) {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "content", "start", "stop"}));
    StripOptions options;
    ASSIGN_OR_RETURN(options.character, node.String("content"));
    if (options.character.empty() || DecodeChar(options.character, 0).length != options.character.size()) {
      return node.Child("content").Error("expected one character");
    }
    ASSIGN_OR_RETURN(options.start, node.Child("start").AsId());
    ASSIGN_OR_RETURN(options.stop, node.Child("stop").AsId());
    if (fused) {
      Append<StripFusedStage>(options);
    } else {
      Append<StripStage>(options);
    }
    return absl::OkStatus();
  }

  absl::Status AddMetaspace(const JsonNode& node) {
    RETURN_IF_ERROR(
        node.HasOnlyKeys({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
    ASSIGN_OR_RETURN(const std::string mark, node.String("replacement"));
    if (mark.empty()) return node.Child("replacement").Error("expected one character");
    ASSIGN_OR_RETURN(const bool add_prefix_space, node.Bool("add_prefix_space", true));
    bool drop_in_first = add_prefix_space;
    if (!node.Child("prepend_scheme").is_null()) {
      ASSIGN_OR_RETURN(const std::string scheme, node.String("prepend_scheme"));
      if (scheme != "first" && scheme != "never" && scheme != "always") {
        return node.Child("prepend_scheme")
            .NotSupported(absl::StrCat("\"", scheme, "\" (expected first, never or always)"));
      }
      drop_in_first = scheme != "never";
    }
    HoldIfFused();
    Append<MetaspaceStage>(mark, drop_in_first);
    return absl::OkStatus();
  }
};

absl::StatusOr<DecoderChain> DecoderChain::FromJson(const JsonNode& node) {
  Build build;
  if (node.is_null()) {
    build.Append<JoinWithSpacesStage>();
  } else {
    RETURN_IF_ERROR(build.Add(node));
  }
  DecoderChain chain;
  chain.steps_ = std::move(build.steps);
  chain.starts_with_byte_level_ = build.starts_with_byte_level;
  return chain;
}

}  // namespace sluice::engine
