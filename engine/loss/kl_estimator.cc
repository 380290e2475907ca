#include "engine/loss/kl_estimator.h"

#include <algorithm>
#include <cmath>

namespace sluice::engine {
namespace {

constexpr double kMaxLogRatio = 20;
constexpr double kMaxK3 = 10;

constexpr KlTypeName kNames[] = {
    {"kl", {KlEstimator::kK1, false}},         {"k1", {KlEstimator::kK1, false}},
    {"abs", {KlEstimator::kAbs, false}},       {"mse", {KlEstimator::kK2, false}},
    {"k2", {KlEstimator::kK2, false}},         {"low_var_kl", {KlEstimator::kK3, false}},
    {"k3", {KlEstimator::kK3, false}},         {"kl+", {KlEstimator::kK1, true}},
    {"k1+", {KlEstimator::kK1, true}},         {"abs+", {KlEstimator::kAbs, true}},
    {"mse+", {KlEstimator::kK2, true}},        {"k2+", {KlEstimator::kK2, true}},
    {"low_var_kl+", {KlEstimator::kK3, true}}, {"k3+", {KlEstimator::kK3, true}},
};

KlTerm K3(double difference) {
  const double log_ratio = std::clamp(-difference, -kMaxLogRatio, kMaxLogRatio);
  const double value = std::expm1(log_ratio) - log_ratio;
  const bool clamped = std::abs(difference) > kMaxLogRatio || value > kMaxK3;
  return {std::min(value, kMaxK3), clamped ? 0 : -std::expm1(log_ratio)};
}

}  // namespace

std::span<const KlTypeName> KlTypeNames() { return kNames; }

std::optional<KlType> ParseKlType(absl::string_view name) {
  for (const KlTypeName& row : kNames) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

KlTerm EstimateKl(KlType type, double log_prob, double ref_log_prob) {
  const double difference = log_prob - ref_log_prob;
  KlTerm term;
  switch (type.estimator) {
    case KlEstimator::kK1:
      term = {difference, 1};
      break;
    case KlEstimator::kAbs:
      term = {std::abs(difference), static_cast<double>((difference > 0) - (difference < 0))};
      break;
    case KlEstimator::kK2:
      term = {difference * difference / 2, difference};
      break;
    case KlEstimator::kK3:
      term = K3(difference);
      break;
  }
  if (type.k2_gradient) term.d_log_prob = difference;
  return term;
}

}  // namespace sluice::engine
