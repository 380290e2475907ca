#include "engine/data/batch_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

// Places ordered by length, longest first; equal lengths in their order.
std::vector<int32_t> LongestFirst(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return lengths[a] > lengths[b]; });
  return order;
}

// REQUIRES: `places` longest first.
std::vector<std::vector<int32_t>> FirstFit(const std::vector<int32_t>& places, const std::vector<int64_t>& lengths,
                                           const PlanOptions& options) {
  std::vector<std::vector<int32_t>> bins;
  std::vector<int64_t> space;
  for (int32_t place : places) {
    size_t bin = 0;
    while (bin < bins.size() &&
           (space[bin] < lengths[place] ||
            (options.max_sequences > 0 && static_cast<int64_t>(bins[bin].size()) >= options.max_sequences))) {
      ++bin;
    }
    if (bin == bins.size()) {
      bins.emplace_back();
      space.push_back(options.max_tokens);
    }
    bins[bin].push_back(place);
    space[bin] -= lengths[place];
  }
  for (std::vector<int32_t>& bin : bins) std::sort(bin.begin(), bin.end());
  return bins;
}

}  // namespace

std::vector<int64_t> BatchPlan::TokensOfRanks(const std::vector<int64_t>& lengths) const {
  std::vector<int64_t> tokens_of_rank;
  for (const auto& micro_batches : ranks) {
    int64_t& sum = tokens_of_rank.emplace_back(0);
    for (const std::vector<int32_t>& places : micro_batches) {
      for (const int32_t place : places) sum += lengths[static_cast<size_t>(place)];
    }
  }
  return tokens_of_rank;
}

double BatchPlan::FillRatio(int64_t max_tokens) const {
  const double slots = static_cast<double>(ranks.size()) * static_cast<double>(micro_batches_per_rank()) *
                       static_cast<double>(max_tokens);
  return static_cast<double>(tokens) / slots;
}

absl::StatusOr<BatchPlan> PlanBatch(const std::vector<int64_t>& lengths, const PlanOptions& options) {
  BatchPlan plan;
  for (int64_t length : lengths) {
    if (length < 1 || length > options.max_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("a sequence of ", length, " tokens does not fit a micro-batch of ",
                                                     options.max_tokens, " token slots"));
    }
    plan.tokens += length;
  }

  using Load = std::pair<int64_t, int64_t>;  // tokens, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> lightest;
  for (int64_t rank = 0; rank < options.world_size; ++rank) lightest.push({0, rank});
  std::vector<std::vector<int32_t>> places_of_rank(options.world_size);
  for (int32_t place : LongestFirst(lengths)) {
    auto [tokens, rank] = lightest.top();
    lightest.pop();
    places_of_rank[rank].push_back(place);
    lightest.push({tokens + lengths[place], rank});
  }

  size_t micro_batches = 1;
  for (const std::vector<int32_t>& places : places_of_rank) {
    plan.ranks.push_back(FirstFit(places, lengths, options));
    micro_batches = std::max(micro_batches, plan.ranks.back().size());
  }
  for (auto& bins : plan.ranks) bins.resize(micro_batches);
  return plan;
}

MicroBatch PackMicroBatch(const std::vector<TokenSpan>& sequences, int64_t token_slots) {
  MicroBatch batch;
  batch.input_ids.assign(token_slots, 0);
  batch.position_ids.assign(token_slots, 0);
  batch.labels.assign(token_slots, kIgnoreLabel);
  batch.cu_seqlens = {0};
  int64_t start = 0;
  for (const TokenSpan& sequence : sequences) {
    std::copy(sequence.ids, sequence.ids + sequence.tokens, batch.input_ids.begin() + start);
    std::iota(batch.position_ids.begin() + start, batch.position_ids.begin() + start + sequence.tokens, 0);
    for (int64_t t = 0; t + 1 < sequence.tokens; ++t) {
      if (sequence.mask[t + 1] != 0) batch.labels[start + t] = sequence.ids[t + 1];
    }
    start += sequence.tokens;
    batch.cu_seqlens.push_back(static_cast<int32_t>(start));
    batch.sample_ids.push_back(sequence.sample_id);
  }
  return batch;
}

}  // namespace sluice::engine
