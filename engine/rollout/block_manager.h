// Which page of the key/value cache holds which tokens of which sequence.
//
// A page (block) holds the keys and values of `block_size` consecutive tokens. Full pages are shared: a sequence whose
// tokens begin with those of a page that is there already, from the first token on, refers to it instead of computing
// it again, so that the samples of one prompt share its pages. Pages are counted by reference; a shared page is never
// written to. A page that nobody refers to keeps its contents until it is needed, the one unused longest first.
//
// Numbers only: the pages' memory is the model's. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace sluice::engine {

class BlockManager {
 public:
  // REQUIRES: both at least 1.
  BlockManager(int64_t blocks, int64_t block_size, bool prefix_sharing);

  int64_t block_size() const { return block_size_; }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }  // nobody refers to them
  int32_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }
  std::span<const int32_t> references() const { return references_; }  // of every page
  int64_t BlocksFor(int64_t tokens) const { return (tokens + block_size_ - 1) / block_size_; }

  // The full pages that hold the beginning of `tokens`, but never all of them: one token at least is left to compute,
  // because its logits are wanted.
  std::vector<int32_t> Match(std::span<const int32_t> tokens) const;

  // Adds a reference to each.
  void Adopt(std::span<const int32_t> blocks);

  // Appends fresh pages to `blocks` until it holds `tokens`. ResourceExhausted, with nothing changed, if there are not
  // enough free ones.
  absl::Status Grow(int64_t tokens, std::vector<int32_t>& blocks);

  // From now on the first `computed` tokens' full pages may be matched. `blocks` are the sequence's pages.
  void Publish(std::span<const int32_t> tokens, int64_t computed, std::span<const int32_t> blocks);

  // Gives the references back and clears `blocks`.
  void Release(std::vector<int32_t>& blocks);

  // No page's contents match any more (the weights changed).
  void ForgetContents();

 private:
  // A full page is known by the page before it (-1: none) and its own tokens. Pages that hold the same tokens behind
  // the same page exist once in the table; a page that is computed a second time stays unnamed.
  using Contents = std::pair<int32_t, std::vector<int32_t>>;
  struct Block {
    std::map<Contents, int32_t>::iterator name;  // contents_.end(): unnamed
    std::list<int32_t>::iterator free;           // its place in free_, if nobody refers to it
  };

  void Unname(int32_t block);

  const int64_t block_size_;
  const bool prefix_sharing_;
  std::vector<Block> blocks_;
  std::vector<int32_t> references_;       // to each
  std::list<int32_t> free_;               // longest unused first; those without contents before all others
  std::map<Contents, int32_t> contents_;  // to the page
};

}  // namespace sluice::engine
