// Which rank computes what of a step whose parts lie on the ranks already: pure, so that all ranks agree without a
// message about it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::engine {

// What stays together: an answer, or the answers to one prompt.
struct BalanceUnit {
  int64_t mini_batch = 0;  // >= 0; ranks wait for each other at the end of each
  double cost = 0;         // > 0, in any unit, such as tokens or FLOPs
};

// The rank of each unit, 0 .. ranks - 1. The units of a mini-batch are put into as many bins as there are ranks by
// longest processing time first (Graham 1969: the heaviest bin is at most 4/3 of the best possible); of its bins the
// heaviest goes to the rank that has the least so far. So both a mini-batch and the whole step are even. Ties go to the
// lower place and the lower rank. REQUIRES: ranks >= 1.
std::vector<int32_t> BalanceOverRanks(std::span<const BalanceUnit> units, int64_t ranks);

// The largest sum of a rank over the mean of all: 1 is even, `ranks` is all on one. 1 where there is no cost.
double Imbalance(std::span<const double> cost_of_rank);

}  // namespace sluice::engine
