#include "engine/roles/best_checkpoint.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/build_info.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

constexpr char kLoss[] = "val/loss";
constexpr char kValidation[] = "validation";  // key of the metadata

std::map<std::string, double> NumbersOf(const v1::ValidationMetrics& validation) {
  std::map<std::string, double> numbers(validation.metrics().begin(), validation.metrics().end());
  if (validation.has_loss()) numbers[kLoss] = validation.loss();
  return numbers;
}

}  // namespace

BestMetric BestMetricOf(const v1::CheckpointSpec& spec) {
  const bool is_loss = absl::EndsWith(spec.best_metric(), "loss");
  return {spec.best_metric(), spec.best_mode() == "auto" ? !is_loss : spec.best_mode() == "max"};
}

std::optional<double> ValueOf(const std::string& name, const v1::ValidationMetrics& validation) {
  const std::map<std::string, double> numbers = NumbersOf(validation);
  const auto found = numbers.find(name);
  if (found == numbers.end() || !std::isfinite(found->second)) return std::nullopt;
  return found->second;
}

std::string NamesOf(const v1::ValidationMetrics& validation) {
  return absl::StrJoin(NumbersOf(validation), ", ",
                       [](std::string* out, const auto& number) { out->append(number.first); });
}

std::string CheckpointMetadata(const std::string& recipe, const v1::ValidationMetrics* validation) {
  nlohmann::json metadata = {{"sluice_version", BuildVersion()}, {"recipe", recipe}};
  if (validation != nullptr) {
    nlohmann::json& numbers = metadata[kValidation] = nlohmann::json::object();
    for (const auto& [name, value] : NumbersOf(*validation)) {
      if (std::isfinite(value)) numbers[name] = value;
    }
  }
  return metadata.dump();
}

CheckpointMerit MeritBy(const BestMetric& metric) {
  if (metric.name.empty()) return nullptr;
  return [metric](const std::string& metadata_json) -> std::optional<double> {
    const nlohmann::json metadata = nlohmann::json::parse(metadata_json, nullptr, /*allow_exceptions=*/false);
    if (!metadata.is_object() || !metadata.contains(kValidation)) return std::nullopt;
    const nlohmann::json& numbers = metadata[kValidation];
    const auto found = numbers.find(metric.name);
    if (found == numbers.end() || !found->is_number()) return std::nullopt;
    const double value = found->get<double>();
    return metric.larger_is_better ? value : -value;
  };
}

absl::StatusOr<std::optional<v1::BestCheckpoint>> FindBest(const CheckpointStore& store, const BestMetric& metric) {
  ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> info, store.Best());
  if (!info.has_value()) return std::optional<v1::BestCheckpoint>();
  const std::optional<double> merit = MeritBy(metric)(info->metadata_json);
  v1::BestCheckpoint best;
  best.set_step(info->step);
  best.set_value(metric.larger_is_better ? *merit : -*merit);
  return std::optional<v1::BestCheckpoint>(best);
}

bool IsBetter(const BestMetric& metric, double value, const std::optional<v1::BestCheckpoint>& best) {
  if (!best.has_value()) return true;
  return metric.larger_is_better ? value > best->value() : value < best->value();
}

}  // namespace sluice::engine
