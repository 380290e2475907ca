#include "engine/data/rank_balance.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace sluice::engine {
namespace {

// 0 .. n - 1 by falling `cost`; equal ones in their order.
std::vector<size_t> HeaviestFirst(std::span<const double> cost) {
  std::vector<size_t> order(cost.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return cost[a] > cost[b]; });
  return order;
}

}  // namespace

std::vector<int32_t> BalanceOverRanks(std::span<const BalanceUnit> units, int64_t ranks) {
  std::map<int64_t, std::vector<size_t>> mini_batches;
  for (size_t i = 0; i < units.size(); ++i) mini_batches[units[i].mini_batch].push_back(i);
  std::vector<int32_t> rank_of(units.size(), 0);
  std::vector<double> total(static_cast<size_t>(ranks), 0.0);
  for (const auto& [mini_batch, members] : mini_batches) {
    std::vector<double> costs;
    for (const size_t unit : members) costs.push_back(units[unit].cost);
    std::vector<double> load(total.size(), 0.0);
    std::vector<size_t> bin_of(members.size());
    for (const size_t member : HeaviestFirst(costs)) {
      bin_of[member] = static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin());
      load[bin_of[member]] += costs[member];
    }
    // Which bin is whose is free: it evens out what the mini-batches before this one left.
    std::vector<size_t> lightest_first(total.size());
    std::iota(lightest_first.begin(), lightest_first.end(), 0);
    std::stable_sort(lightest_first.begin(), lightest_first.end(),
                     [&](size_t a, size_t b) { return total[a] < total[b]; });
    std::vector<size_t> rank_of_bin(total.size());
    const std::vector<size_t> heaviest = HeaviestFirst(load);
    for (size_t i = 0; i < heaviest.size(); ++i) rank_of_bin[heaviest[i]] = lightest_first[i];
    for (size_t bin = 0; bin < load.size(); ++bin) total[rank_of_bin[bin]] += load[bin];
    for (size_t i = 0; i < members.size(); ++i) {
      rank_of[members[i]] = static_cast<int32_t>(rank_of_bin[bin_of[i]]);
    }
  }
  return rank_of;
}

double Imbalance(std::span<const double> cost_of_rank) {
  const double sum = std::accumulate(cost_of_rank.begin(), cost_of_rank.end(), 0.0);
  if (sum <= 0) return 1;
  return *std::max_element(cost_of_rank.begin(), cost_of_rank.end()) * static_cast<double>(cost_of_rank.size()) / sum;
}

}  // namespace sluice::engine
