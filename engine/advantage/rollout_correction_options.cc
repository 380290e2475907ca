#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "engine/advantage/rollout_correction.h"

namespace sluice::engine {
namespace {

using enum RejectionScope;
using enum RejectionStatistic;
constexpr RejectionName kNames[] = {
    {"token_k1", kToken, kK1},           {"token_k2", kToken, kK2},           {"token_k3", kToken, kK3},
    {"seq_sum_k1", kSequenceSum, kK1},   {"seq_sum_k2", kSequenceSum, kK2},   {"seq_sum_k3", kSequenceSum, kK3},
    {"seq_mean_k1", kSequenceMean, kK1}, {"seq_mean_k2", kSequenceMean, kK2}, {"seq_mean_k3", kSequenceMean, kK3},
    {"seq_max_k2", kSequenceMax, kK2},   {"seq_max_k3", kSequenceMax, kK3},
};

absl::StatusOr<double> ParsePositive(absl::string_view text, absl::string_view key) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && std::isfinite(value) && value > 0) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm.rollout_correction.", key, ": \"", text, "\" is not a positive number"));
}

struct Bounds {
  std::optional<double> lower;
  double upper;
};

absl::StatusOr<Bounds> ParseBounds(absl::string_view text, absl::string_view key) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('_', 1));
  if (parts.size() == 1) {
    ASSIGN_OR_RETURN(const double upper, ParsePositive(text, key));
    return Bounds{std::nullopt, upper};
  }
  ASSIGN_OR_RETURN(const double lower, ParsePositive(parts[0], key));
  ASSIGN_OR_RETURN(const double upper, ParsePositive(parts[1], key));
  if (lower <= upper) return Bounds{lower, upper};
  return absl::InvalidArgumentError(
      absl::StrCat("algorithm.rollout_correction.", key, ": \"", text, "\" has a lower bound above its upper bound"));
}

absl::StatusOr<RejectionCriterion> ParseCriterion(absl::string_view name, absl::string_view threshold) {
  for (const RejectionName& row : kNames) {
    if (row.name != name) continue;
    ASSIGN_OR_RETURN(const Bounds bounds, ParseBounds(threshold, "rollout_rs_threshold"));
    if (row.statistic == kK1) {
      const double lower = bounds.lower.value_or(1 / bounds.upper);
      return RejectionCriterion{row.scope, row.statistic, std::log(lower), std::log(bounds.upper)};
    }
    if (bounds.lower.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("algorithm.rollout_correction.rollout_rs_threshold: ", name,
                                                     " takes one upper bound, not \"", threshold, "\""));
    }
    return RejectionCriterion{row.scope, row.statistic, 0, bounds.upper};
  }
  return absl::InvalidArgumentError(absl::StrCat("algorithm.rollout_correction.rollout_rs: \"", name,
                                                 "\" is no criterion (they are token_k1 to k3, "
                                                 "seq_sum_k1 to k3, seq_mean_k1 to k3, seq_max_k2 and k3)"));
}

}  // namespace

std::optional<RolloutImportance> ParseRolloutImportance(absl::string_view name) {
  if (name == "none") return RolloutImportance::kNone;
  if (name == "token") return RolloutImportance::kToken;
  if (name == "sequence") return RolloutImportance::kSequence;
  return std::nullopt;
}

absl::StatusOr<ImportanceThreshold> ParseImportanceThreshold(absl::string_view text) {
  ASSIGN_OR_RETURN(const Bounds bounds, ParseBounds(text, "rollout_is_threshold"));
  return ImportanceThreshold{bounds.upper, bounds.lower};
}

std::span<const RejectionName> RejectionNames() { return kNames; }

absl::StatusOr<std::vector<RejectionCriterion>> ParseRejection(absl::string_view names, absl::string_view thresholds) {
  if (names.empty() || names == "none") return std::vector<RejectionCriterion>();
  const auto split = [](absl::string_view text) {
    std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
    for (absl::string_view& part : parts) part = absl::StripAsciiWhitespace(part);
    return parts;
  };
  const std::vector<absl::string_view> criteria = split(names), bounds = split(thresholds);
  if (bounds.size() != 1 && bounds.size() != criteria.size()) {
    return absl::InvalidArgumentError(absl::StrCat("algorithm.rollout_correction.rollout_rs_threshold: has ",
                                                   bounds.size(), " thresholds for the ", criteria.size(),
                                                   " criteria of rollout_rs (one for all, or one each)"));
  }
  std::vector<RejectionCriterion> result;
  for (size_t i = 0; i < criteria.size(); ++i) {
    ASSIGN_OR_RETURN(const RejectionCriterion criterion,
                     ParseCriterion(criteria[i], bounds.size() == 1 ? bounds[0] : bounds[i]));
    result.push_back(criterion);
  }
  return result;
}

}  // namespace sluice::engine
