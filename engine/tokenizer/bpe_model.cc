#include "engine/tokenizer/bpe_model.h"

#include <algorithm>
#include <functional>

#include "engine/tokenizer/utf8.h"
#include "engine/tokenizer/word_cache.h"

namespace sluice::engine {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

// Up to here a scan of all pairs per merge beats a heap; words of text are far shorter.
constexpr size_t kScanLimit = 48;

}  // namespace

std::optional<int32_t> BpeModel::IdOf(std::string_view piece) const {
  const auto it = ids_.find(absl::string_view(piece.data(), piece.size()));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

const std::string* BpeModel::PieceOf(int32_t id) const {
  if (id < 0 || id >= id_limit() || !used_[id]) return nullptr;
  return &pieces_[id];
}

void BpeModel::Tokenize(std::string_view word, TokenBuffer* out) const {
  if (ignore_merges_) {
    const auto it = whole_words_.find(absl::string_view(word.data(), word.size()));
    if (it != whole_words_.end()) {
      out->ids.push_back(it->second);
      if (out->want_lengths) out->lengths.push_back(static_cast<uint32_t>(word.size()));
      return;
    }
  }
  if (!marks_start_words_) return TokenizeSegment(word, out);
  // Without pre-tokenizer the word is the whole text. No merge crosses the border before the first mark of a run, so
  // the segments between such borders can be taken one by one, which keeps them short and cacheable.
  size_t begin = 0;
  for (size_t at = word.find(kMark, 1); at != word.npos; at = word.find(kMark, at + kMark.size())) {
    const bool after_mark = at >= kMark.size() && word.substr(at - kMark.size(), kMark.size()) == kMark;
    if (after_mark) continue;
    TokenizeSegment(word.substr(begin, at - begin), out);
    begin = at;
  }
  TokenizeSegment(word.substr(begin), out);
}

void BpeModel::TokenizeSegment(std::string_view word, TokenBuffer* out) const {
  WordCache::Entry* entry = nullptr;
  if (word.size() <= WordCache::kMaxWordBytes) {
    entry = &WordCache::OfThisThread().At(word);
    if (entry->Holds(cache_owner_, word)) {
      out->ids.insert(out->ids.end(), entry->ids, entry->ids + entry->id_count);
      for (int i = 0; out->want_lengths && i < entry->id_count; ++i) {
        out->lengths.push_back(piece_lengths_[entry->ids[i]]);
      }
      return;
    }
  }
  thread_local Symbols symbols;
  symbols.clear();
  AppendUnits(word, &symbols);
  if (symbols.size() <= kScanLimit) {
    MergeShort(&symbols);
  } else {
    MergeLong(&symbols);
  }
  size_t standard_length = 0;
  for (const Symbol& symbol : symbols) {
    out->ids.push_back(symbol.id);
    if (out->want_lengths) out->lengths.push_back(symbol.length);
    standard_length += piece_lengths_[symbol.id];
  }
  // A word with unknown characters is not cached: the lengths of its tokens do not follow from their ids. (A piece
  // stands for no more bytes than it spells, so equal sums mean equal lengths throughout.)
  if (entry != nullptr && symbols.size() <= WordCache::kMaxIds && standard_length == word.size()) {
    entry->Set(cache_owner_, word, absl::MakeConstSpan(out->ids).last(symbols.size()));
  }
}

// The id of the unit at word[at], or -1, and its length in bytes.
int32_t BpeModel::UnitId(std::string_view word, size_t at, uint32_t* length) const {
  const auto byte = static_cast<unsigned char>(word[at]);
  if (byte_level_ || byte < 0x80) {
    *length = 1;
    return unit_ids_[byte];
  }
  const DecodedChar c = DecodeChar(word, at);
  *length = c.length;
  const auto it = char_ids_.find(c.code_point);
  return it == char_ids_.end() ? -1 : it->second;
}

void BpeModel::AppendUnits(std::string_view word, Symbols* symbols) const {
  // Unknown characters wait here until a known one follows: with fuse_unk they become one token. Bytes of byte_fallback
  // do not end the wait, which is what the reference does.
  std::optional<Symbol> unknown;
  uint32_t lost = 0;
  uint32_t length = 0;
  for (size_t at = 0; at < word.size(); at += length) {
    const int32_t id = UnitId(word, at, &length);
    if (id >= 0) {
      if (unknown) symbols->push_back(*unknown);
      unknown.reset();
      symbols->push_back({id, length + lost});
      lost = 0;
      continue;
    }
    if (byte_fallback_) {
      const std::string_view bytes = word.substr(at, length);
      const auto fallback = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
      if (std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return fallback(byte) >= 0; })) {
        for (const char byte : bytes) symbols->push_back({fallback(byte), 1});
        continue;
      }
    }
    if (!unk_id_) {
      // It vanishes; its text counts to the token before it, or to the first one.
      (symbols->empty() ? lost : symbols->back().length) += length;
      continue;
    }
    if (unknown && fuse_unk_) {
      unknown->length += length;
    } else {
      if (unknown) symbols->push_back(*unknown);
      unknown = Symbol{*unk_id_, length};
    }
  }
  if (unknown) symbols->push_back(*unknown);
}

void BpeModel::MergeShort(Symbols* symbols) const {
  size_t count = symbols->size();
  if (count < 2) return;
  Symbol* s = symbols->data();
  Merge merges[kScanLimit];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.Find(s[i].id, s[i + 1].id);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoMerge) break;
    s[best] = {merges[best].id, s[best].length + s[best + 1].length};
    std::copy(s + best + 2, s + count, s + best + 1);
    if (best + 2 < count) std::copy(merges + best + 2, merges + count - 1, merges + best + 1);
    --count;
    if (best + 1 < count) merges[best] = merges_.Find(s[best].id, s[best + 1].id);
    if (best > 0) merges[best - 1] = merges_.Find(s[best - 1].id, s[best].id);
  }
  symbols->resize(count);
}

void BpeModel::MergeLong(Symbols* symbols) const {
  struct Link {
    uint32_t previous;
    uint32_t next;
    Merge merge;  // of this symbol with the next one
  };
  const auto count = static_cast<uint32_t>(symbols->size());
  constexpr uint32_t kNone = UINT32_MAX;
  Symbols& s = *symbols;
  std::vector<Link> links(count);
  std::vector<uint64_t> heap;  // rank above, position below: the smallest is the leftmost of the lowest rank
  const auto refresh = [&](uint32_t at) {
    Link& link = links[at];
    link.merge = link.next == kNone ? Merge{kNoMerge, 0} : merges_.Find(s[at].id, s[link.next].id);
  };
  const auto entry = [&](uint32_t at) { return static_cast<uint64_t>(links[at].merge.rank) << 32 | at; };
  const auto push = [&](uint32_t at) {
    refresh(at);
    if (links[at].merge.rank == kNoMerge) return;
    heap.push_back(entry(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (uint32_t i = 0; i < count; ++i) {
    links[i].previous = i == 0 ? kNone : i - 1;
    links[i].next = i + 1 == count ? kNone : i + 1;
    refresh(i);
    if (links[i].merge.rank != kNoMerge) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    if (s[at].length == 0 || entry(at) != top) continue;  // the pair has changed since
    const uint32_t gone = links[at].next;
    s[at] = {links[at].merge.id, s[at].length + s[gone].length};
    s[gone].length = 0;
    links[at].next = links[gone].next;
    if (links[at].next != kNone) links[links[at].next].previous = at;
    push(at);
    if (links[at].previous != kNone) push(links[at].previous);
  }
  s.erase(std::remove_if(s.begin(), s.end(), [](const Symbol& symbol) { return symbol.length == 0; }), s.end());
}

}  // namespace sluice::engine
