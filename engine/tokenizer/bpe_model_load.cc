#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

// Far above any vocabulary; keeps a mistyped id from claiming gigabytes.
constexpr int32_t kMaxId = (1 << 24) - 1;

std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Each model of the process has its own number in the word caches, so that a cache never answers for a model that is
// gone.
uint32_t NextCacheOwner() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Whether `piece` has a mark right after another character.
bool HasInnerMark(std::string_view piece) {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  for (size_t at = piece.find(kMark, 1); at != piece.npos; at = piece.find(kMark, at + kMark.size())) {
    if (at < kMark.size() || piece.substr(at - kMark.size(), kMark.size()) != kMark) return true;
  }
  return false;
}

std::string FallbackPiece(int byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::FromJson(const JsonNode& node, bool byte_level) {
  if (node.is_null()) return node.Error("missing");
  if (!node.value().is_object()) return node.Error("expected an object");
  ASSIGN_OR_RETURN(const std::string type, node.String("type"));
  if (type != "BPE") return node.Child("type").NotSupported(absl::StrCat("\"", type, "\" (expected BPE)"));
  RETURN_IF_ERROR(node.HasOnlyKeys({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                    "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  const JsonNode dropout = node.Child("dropout");
  if (!dropout.is_null() && dropout.value() != 0.0) return dropout.NotSupported("random merges (expected null)");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonNode affix = node.Child(key);
    if (!affix.is_null() && affix.value() != "") return affix.NotSupported("a marked word part (expected null)");
  }
  BpeModel model;
  model.cache_owner_ = NextCacheOwner();
  model.byte_level_ = byte_level;
  ASSIGN_OR_RETURN(model.fuse_unk_, node.Bool("fuse_unk", false));
  ASSIGN_OR_RETURN(model.byte_fallback_, node.Bool("byte_fallback", false));
  ASSIGN_OR_RETURN(model.ignore_merges_, node.Bool("ignore_merges", false));
  RETURN_IF_ERROR(model.ReadVocab(node.Child("vocab")));
  RETURN_IF_ERROR(model.ReadUnits(node));
  RETURN_IF_ERROR(model.ReadMerges(node.Child("merges")));
  return model;
}

absl::Status BpeModel::ReadVocab(const JsonNode& node) {
  if (!node.value().is_object()) return node.Error("expected an object of pieces and ids");
  int32_t highest = -1;
  ids_.reserve(node.value().size());
  for (const auto& [piece, value] : node.value().items()) {
    const JsonNode entry(&value, absl::StrCat(node.path(), "[", Quoted(piece), "]"));
    ASSIGN_OR_RETURN(const int32_t id, entry.AsId());
    if (id > kMaxId) return entry.Error(absl::StrCat("id ", id, " is above ", kMaxId));
    highest = std::max(highest, id);
    ids_.emplace(piece, id);
  }
  pieces_.resize(highest + 1);
  used_.resize(highest + 1);
  piece_lengths_.resize(highest + 1);
  for (const auto& [piece, id] : ids_) {
    if (used_[id]) {
      return node.Error(absl::StrCat("pieces ", Quoted(pieces_[id]), " and ", Quoted(piece), " have the same id ", id));
    }
    used_[id] = true;
    pieces_[id] = piece;
    std::optional<std::string> bytes = byte_level_ ? BytesOfLetters(piece) : piece;
    piece_lengths_[id] = bytes ? static_cast<uint32_t>(bytes->size()) : 0;
    if (ignore_merges_ && bytes) whole_words_.emplace(*std::move(bytes), id);
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ReadUnits(const JsonNode& node) {
  unit_ids_.fill(-1);
  fallback_ids_.fill(-1);
  bool all_bytes = true;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_level_ || byte < 0x80) {
      const std::string unit =
          byte_level_ ? ByteLetter(static_cast<uint8_t>(byte)) : std::string(1, static_cast<char>(byte));
      unit_ids_[byte] = IdOf(unit).value_or(-1);
      all_bytes = all_bytes && unit_ids_[byte] >= 0;
    }
    if (byte_fallback_) fallback_ids_[byte] = IdOf(FallbackPiece(byte)).value_or(-1);
  }
  if (!byte_level_) {
    for (const auto& [piece, id] : ids_) {
      if (piece.size() > 1 && DecodeChar(piece, 0).length == piece.size())
        char_ids_.emplace(DecodeChar(piece, 0).code_point, id);
    }
    // Byte pieces stand for one byte, whatever they spell.
    for (const int32_t id : fallback_ids_) {
      if (id >= 0) piece_lengths_[id] = 1;
    }
  } else if (all_bytes) {
    byte_fallback_ = false;  // nothing falls back
    return absl::OkStatus();
  } else if (byte_fallback_) {
    return node.Child("byte_fallback").NotSupported("with a ByteLevel vocabulary that lacks bytes");
  }
  const JsonNode unk = node.Child("unk_token");
  if (unk.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string unk_piece, unk.AsString());
  unk_id_ = IdOf(unk_piece);
  if (!unk_id_) return unk.Error(absl::StrCat(Quoted(unk_piece), " is not in model.vocab"));
  piece_lengths_[*unk_id_] = 0;  // stands for any text: see TokenizeSegment
  return absl::OkStatus();
}

absl::Status BpeModel::ReadMerges(const JsonNode& node) {
  if (!node.value().is_array()) return node.Error("expected a list of merges");
  merges_ = MergeTable(node.value().size());
  // Where characters may vanish, marks on both sides of one meet and may merge.
  const bool none_vanishes =
      unk_id_ || std::all_of(fallback_ids_.begin(), fallback_ids_.end(), [](int32_t id) { return id >= 0; });
  marks_start_words_ = !byte_level_ && !ignore_merges_ && none_vanishes && char_ids_.contains(0x2581);
  for (size_t i = 0; i < node.value().size(); ++i) {
    const nlohmann::json& merge = node.value()[i];
    const auto bad = [&](std::string_view message) {
      return JsonNode(&merge, absl::StrCat(node.path(), "[", i, "]")).Error(message);
    };
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) {
        return bad(absl::StrCat("expected two pieces and a space between, got ", Quoted(text)));
      }
      RETURN_IF_ERROR(AddMerge(node, i, text.substr(0, space), text.substr(space + 1)));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      RETURN_IF_ERROR(AddMerge(node, i, merge[0].get<std::string>(), merge[1].get<std::string>()));
    } else {
      return bad("expected \"left right\" or [\"left\", \"right\"]");
    }
  }
  return absl::OkStatus();
}

absl::Status BpeModel::AddMerge(const JsonNode& merges, size_t index, const std::string& left,
                                const std::string& right) {
  const std::string both = left + right;
  int32_t ids[3];
  const std::string* const pieces[3] = {&left, &right, &both};
  for (int i = 0; i < 3; ++i) {
    const std::optional<int32_t> id = IdOf(*pieces[i]);
    if (!id) {
      return merges.Error(absl::StrCat("merge ", index, " (", Quoted(left), " + ", Quoted(right),
                                       "): ", Quoted(*pieces[i]), " is not in model.vocab"));
    }
    ids[i] = *id;
  }
  merges_.Insert(ids[0], ids[1], {static_cast<uint32_t>(index), ids[2]});
  marks_start_words_ = marks_start_words_ && !HasInnerMark(both);
  return absl::OkStatus();
}

}  // namespace sluice::engine
