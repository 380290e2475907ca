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
  Spread spread;
  spread.Add(value);
  AddSpread(name, spread);
}

void MetricSums::AddSpread(absl::string_view name, const Spread& spread) {
  if (spread.sum.weight == 0) return;
  AddMean(absl::StrCat(name, "/mean"), spread.sum);
  AddMax(absl::StrCat(name, "/max"), spread.largest);
  AddMin(absl::StrCat(name, "/min"), spread.smallest);
}

std::string MetricSums::Serialize() const {
  std::string bytes;
  for (const auto& [name, sum] : means_) Append('=', name, sum.sum, sum.weight, &bytes);
  for (const auto& [name, value] : sums_) Append('+', name, value, 0, &bytes);
  for (const auto& [name, value] : largest_) Append('>', name, value, 0, &bytes);
  for (const auto& [name, value] : smallest_) Append('<', name, value, 0, &bytes);
  return bytes;
}

absl::Status MetricSums::Merge(absl::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at + sizeof(Entry) < bytes.size() ? bytes.find('\n', at + sizeof(Entry)) : bytes.npos;
    if (end == bytes.npos) return absl::InternalError("numbers of another rank are cut off");
    Entry entry;
    std::memcpy(&entry, bytes.data() + at, sizeof(entry));
    const absl::string_view name = bytes.substr(at + sizeof(Entry), end - at - sizeof(Entry));
    at = end + 1;
    switch (entry.kind) {
      case '=':
        AddMean(name, {entry.value, entry.weight});
        break;
      case '+':
        AddSum(name, entry.value);
        break;
      case '>':
        AddMax(name, entry.value);
        break;
      default:
        AddMin(name, entry.value);
    }
  }
  return absl::OkStatus();
}

void MetricSums::Merge(const MetricSums& other) {
  for (const auto& [name, sum] : other.means_) AddMean(name, sum);
  for (const auto& [name, value] : other.sums_) AddSum(name, value);
  for (const auto& [name, value] : other.largest_) AddMax(name, value);
  for (const auto& [name, value] : other.smallest_) AddMin(name, value);
}

absl::StatusOr<std::map<std::string, double>> MetricSums::Reduce(Communicator& communicator) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> ranks, communicator.AllGather(Serialize()));
  MetricSums all;
  for (const std::string& rank : ranks) RETURN_IF_ERROR(all.Merge(rank));
  std::map<std::string, double> result;
  for (const auto& [name, sum] : all.means_) {
    if (sum.weight != 0) result[name] = sum.Mean();
  }
  for (const auto* values : {&all.sums_, &all.largest_, &all.smallest_}) result.insert(values->begin(), values->end());
  return result;
}

}  // namespace sluice::engine
