// Byte-pair encoding (Sennrich et al. 2016): a word starts as single characters, and the adjacent pair with the lowest
// merge rank, leftmost first, is joined until no pair is left that merges.
//
// Two kinds of vocabulary:
// - byte-level: the units are bytes. tokenizer.json spells them in letters (byte_alphabet.h); they are turned back to
// bytes
//   when the file is read, so words are never spelled in letters.
// - characters: the units are characters. One that is not in the vocabulary becomes its bytes' pieces
// "<0x00>".."<0xFF>"
//   (byte_fallback), or the unknown piece, or nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/tokenizer/json_node.h"
#include "engine/tokenizer/merge_table.h"

namespace sluice::engine {

struct TokenBuffer {
  std::vector<int32_t> ids;
  // Bytes of the word that each token stands for; only filled when wanted.
  bool want_lengths = false;
  std::vector<uint32_t> lengths;
};

// Immutable; const methods may be called from any thread.
class BpeModel {
 public:
  // InvalidArgument, with the path, for what is not supported and for a vocabulary and merges that do not fit.
  static absl::StatusOr<BpeModel> FromJson(const JsonNode& node, bool byte_level);

  // Appends the word's tokens. REQUIRES: word is not empty and is valid UTF-8.
  void Tokenize(std::string_view word, TokenBuffer* out) const;

  // Pieces as the file spells them. A hole in the numbering is no piece.
  std::optional<int32_t> IdOf(std::string_view piece) const;
  const std::string* PieceOf(int32_t id) const;
  size_t piece_count() const { return ids_.size(); }
  int64_t id_limit() const { return static_cast<int64_t>(pieces_.size()); }  // highest id + 1

 private:
  struct Symbol {
    int32_t id;
    uint32_t length;
  };
  using Symbols = std::vector<Symbol>;

  BpeModel() : merges_(0) {}
  absl::Status ReadVocab(const JsonNode& node);
  absl::Status ReadMerges(const JsonNode& node);
  absl::Status AddMerge(const JsonNode& merges, size_t index, const std::string& left, const std::string& right);
  absl::Status ReadUnits(const JsonNode& node);

  // `word` without the look-up of the whole word, through the thread's cache.
  void TokenizeSegment(std::string_view word, TokenBuffer* out) const;
  int32_t UnitId(std::string_view word, size_t at, uint32_t* length) const;
  void AppendUnits(std::string_view word, Symbols* symbols) const;
  void MergeShort(Symbols* symbols) const;
  void MergeLong(Symbols* symbols) const;

  uint32_t cache_owner_ = 0;
  bool byte_level_ = false;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
  std::optional<int32_t> unk_id_;

  std::vector<std::string> pieces_;                        // by id, as in the file
  std::vector<bool> used_;                                 // by id
  absl::flat_hash_map<std::string, int32_t> ids_;          // by piece, as in the file
  absl::flat_hash_map<std::string, int32_t> whole_words_;  // by the word's own bytes; only for ignore_merges
  std::vector<uint32_t> piece_lengths_;                    // by id: bytes of a word that the piece stands for
  std::array<int32_t, 256> unit_ids_;                // byte-level: by byte; characters: by ASCII character. -1: none
  absl::flat_hash_map<uint32_t, int32_t> char_ids_;  // characters above ASCII
  bool byte_fallback_ = false;
  std::array<int32_t, 256> fallback_ids_;  // -1: none
  MergeTable merges_;
  bool marks_start_words_ = false;  // no merge reaches over the border before a U+2581
};

}  // namespace sluice::engine
