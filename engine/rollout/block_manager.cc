#include "engine/rollout/block_manager.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::engine {

BlockManager::BlockManager(int64_t blocks, int64_t block_size, bool prefix_sharing)
    : block_size_(block_size),
      prefix_sharing_(prefix_sharing),
      blocks_(static_cast<size_t>(blocks)),
      references_(blocks_.size()) {
  for (int32_t block = 0; block < static_cast<int32_t>(blocks); ++block) {
    free_.push_back(block);
    blocks_[static_cast<size_t>(block)] = {.name = contents_.end(), .free = std::prev(free_.end())};
  }
}

std::vector<int32_t> BlockManager::Match(std::span<const int32_t> tokens) const {
  std::vector<int32_t> matched;
  if (!prefix_sharing_ || tokens.empty()) return matched;
  const int64_t most = (static_cast<int64_t>(tokens.size()) - 1) / block_size_;
  int32_t before = -1;
  for (int64_t i = 0; i < most; ++i) {
    const auto begin = tokens.begin() + i * block_size_;
    const auto found = contents_.find({before, std::vector<int32_t>(begin, begin + block_size_)});
    if (found == contents_.end()) break;
    before = found->second;
    matched.push_back(before);
  }
  return matched;
}

void BlockManager::Adopt(std::span<const int32_t> blocks) {
  for (const int32_t id : blocks) {
    if (references_[static_cast<size_t>(id)]++ == 0) free_.erase(blocks_[static_cast<size_t>(id)].free);
  }
}

absl::Status BlockManager::Grow(int64_t tokens, std::vector<int32_t>& blocks) {
  const int64_t more = BlocksFor(tokens) - static_cast<int64_t>(blocks.size());
  if (more > free_blocks()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(more, " pages of the key/value cache are needed, ", free_blocks(), " are free"));
  }
  for (int64_t i = 0; i < more; ++i) {
    const int32_t id = free_.front();
    free_.pop_front();
    Unname(id);
    references_[static_cast<size_t>(id)] = 1;
    blocks.push_back(id);
  }
  return absl::OkStatus();
}

void BlockManager::Publish(std::span<const int32_t> tokens, int64_t computed, std::span<const int32_t> blocks) {
  if (!prefix_sharing_) return;
  int32_t before = -1;
  for (int64_t i = 0; i < computed / block_size_; ++i) {
    const int32_t id = blocks[static_cast<size_t>(i)];
    Block& block = blocks_[static_cast<size_t>(id)];
    if (block.name == contents_.end()) {
      const auto begin = tokens.begin() + i * block_size_;
      const auto [place, added] =
          contents_.emplace(Contents{before, std::vector<int32_t>(begin, begin + block_size_)}, id);
      // Computed twice: what follows would hang behind a page that is not this one.
      if (!added) return;
      block.name = place;
    }
    before = id;
  }
}

void BlockManager::Unname(int32_t id) {
  Block& block = blocks_[static_cast<size_t>(id)];
  if (block.name == contents_.end()) return;
  contents_.erase(block.name);
  block.name = contents_.end();
  // The pages behind it are known by its number, which will stand for other contents.
  for (auto next = contents_.lower_bound({id, {}}); next != contents_.end() && next->first.first == id;
       next = contents_.lower_bound({id, {}})) {
    Unname(next->second);
  }
}

void BlockManager::Release(std::vector<int32_t>& blocks) {
  // From the last on: a page is needed again only with those before it, so those behind are given away first.
  for (auto id = blocks.rbegin(); id != blocks.rend(); ++id) {
    if (--references_[static_cast<size_t>(*id)] > 0) continue;
    Block& block = blocks_[static_cast<size_t>(*id)];
    const bool empty = block.name == contents_.end();
    block.free = free_.insert(empty ? free_.begin() : free_.end(), *id);
  }
  blocks.clear();
}

void BlockManager::ForgetContents() {
  for (Block& block : blocks_) block.name = contents_.end();
  contents_.clear();
}

}  // namespace sluice::engine
