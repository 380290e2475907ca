// Numbers of a step by name, collected on each rank and put together over all of them. Not thread-safe.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/comm/communicator.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

// Numbers that are many, such as one for each token, put together before they get a name.
struct Spread {
  WeightedSum sum;
  double largest = -std::numeric_limits<double>::infinity();
  double smallest = std::numeric_limits<double>::infinity();

  void Add(double value) {
    sum.Add(value);
    largest = std::max(largest, value);
    smallest = std::min(smallest, value);
  }
};

// Adding costs a search by name: what is added for each token is put together first (WeightedSum, Spread).
class MetricSums {
 public:
  // Means, weighted; of no weight at all a mean is left out.
  void AddMean(absl::string_view name, double value, double weight = 1);
  void AddMean(absl::string_view name, const WeightedSum& sum) { means_[std::string(name)] += sum; }
  void AddSum(absl::string_view name, double value);
  void AddMax(absl::string_view name, double value);
  void AddMin(absl::string_view name, double value);
  // Mean, largest and smallest, as name/mean, name/max and name/min; of none nothing.
  void AddSpread(absl::string_view name, double value);
  void AddSpread(absl::string_view name, const Spread& spread);

  // As bytes, for another rank, and what such bytes say on top. Internal: they are no such bytes.
  std::string Serialize() const;
  absl::Status Merge(absl::string_view bytes);
  void Merge(const MetricSums& other);

  // Of all ranks, which need not have the same names; the same on each. Collective.
  absl::StatusOr<std::map<std::string, double>> Reduce(Communicator& communicator) const;

 private:
  std::map<std::string, WeightedSum> means_;
  std::map<std::string, double> sums_, largest_, smallest_;
};

}  // namespace sluice::engine
