#include "engine/roles/metric_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

// One entry on the wire between ranks: kind, two numbers, the name.
struct Entry {
  char kind;
  double value, weight;
};

void Append(char kind, const std::string& name, double value, double weight, std::string* bytes) {
  const Entry entry = {kind, value, weight};
  bytes->append(reinterpret_cast<const char*>(&entry), sizeof(entry));
  absl::StrAppend(bytes, name, "\n");
}

}  // namespace

void MetricSums::AddMean(absl::string_view name, double value, double weight) {
  means_[std::string(name)].Add(value, weight);
}

void MetricSums::AddSum(absl::string_view name, double value) { sums_[std::string(name)] += value; }

void MetricSums::AddMax(absl::string_view name, double value) {
  const auto [entry, is_new] = largest_.emplace(name, value);
  if (!is_new) entry->second = std::max(entry->second, value);
}

void MetricSums::AddMin(absl::string_view name, double value) {
  const auto [entry, is_new] = smallest_.emplace(name, value);
  if (!is_new) entry->second = std::min(entry->second, value);
}

void MetricSums::AddSpread(absl::string_view name, double value) {
  AddMean(absl::StrCat(name, "/mean"), value);
  AddMax(absl::StrCat(name, "/max"), value);
  AddMin(absl::StrCat(name, "/min"), value);
}

absl::StatusOr<std::map<std::string, double>> MetricSums::Reduce(Communicator& communicator) const {
  std::string bytes;
  for (const auto& [name, sum] : means_) Append('=', name, sum.sum, sum.weight, &bytes);
  for (const auto& [name, value] : sums_) Append('+', name, value, 0, &bytes);
  for (const auto& [name, value] : largest_) Append('>', name, value, 0, &bytes);
  for (const auto& [name, value] : smallest_) Append('<', name, value, 0, &bytes);
  ASSIGN_OR_RETURN(const std::vector<std::string> ranks, communicator.AllGather(bytes));
  MetricSums all;
  for (const std::string& rank : ranks) {
    for (size_t at = 0; at + sizeof(Entry) < rank.size();) {
      Entry entry;
      std::memcpy(&entry, rank.data() + at, sizeof(entry));
      at += sizeof(entry);
      const size_t end = rank.find('\n', at);
      const std::string name = rank.substr(at, end - at);
      at = end + 1;
      switch (entry.kind) {
        case '=':
          all.AddMean(name, {entry.value, entry.weight});
          break;
        case '+':
          all.AddSum(name, entry.value);
          break;
        case '>':
          all.AddMax(name, entry.value);
          break;
        default:
          all.AddMin(name, entry.value);
      }
    }
  }
  std::map<std::string, double> result;
  for (const auto& [name, sum] : all.means_) {
    if (sum.weight != 0) result[name] = sum.Mean();
  }
  for (const auto* values : {&all.sums_, &all.largest_, &all.smallest_}) result.insert(values->begin(), values->end());
  return result;
}

}  // namespace sluice::engine
