#include "engine/advantage/advantage.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/advantage/estimator.h"

namespace sluice::engine {
namespace {

constexpr double kWhitenEpsilon = 1e-8;

const EstimatorRow& RowOf(AdvantageEstimator estimator) {
  const auto rows = EstimatorRows();
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const EstimatorRow& row) { return row.info.estimator == estimator; });
}

absl::Status Check(const AdvantageOptions& options, const AdvantageInputs& inputs) {
  const AdvantageEstimatorInfo& info = InfoOf(options.estimator);
  const auto unit = [](double value, absl::string_view key) {
    return value >= 0 && value <= 1
               ? absl::OkStatus()
               : absl::InvalidArgumentError(absl::StrCat("algorithm.", key, ": is ", value, ", must be in [0, 1]"));
  };
  RETURN_IF_ERROR(unit(options.gamma, "gamma"));
  RETURN_IF_ERROR(unit(options.lam, "lam"));
  RETURN_IF_ERROR(Validate(inputs.batch));
  const size_t sequences = inputs.batch.sequences.size();
  if (inputs.samples.size() != sequences) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples has ", inputs.samples.size(), " elements, the batch has ", sequences, " sequences"));
  }
  if (!inputs.token_rewards.empty()) {
    RETURN_IF_ERROR(CheckLength(inputs.batch, inputs.token_rewards.size(), "token_rewards"));
  }
  if (info.needs_components && !inputs.token_rewards.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.name, " takes no token rewards (for the KL use use_kl_loss instead of use_kl_in_reward)"));
  }
  if (info.needs_values) RETURN_IF_ERROR(CheckLength(inputs.batch, inputs.values.size(), "values"));
  if (info.needs_components &&
      (options.component_weight.empty() || inputs.components.size() != sequences * options.component_weight.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.name, " needs at least one component_weight and as many components per sample; ",
                     options.component_weight.size(), " weights, ", sequences, " samples and ",
                     inputs.components.size(), " components are given"));
  }
  return absl::OkStatus();
}

bool IsScored(const AdvantageOptions& options, const AdvantageInputs& inputs, size_t sample) {
  const AdvantageEstimatorInfo& info = InfoOf(options.estimator);
  const auto finite = [](const std::optional<double>& value) { return value.has_value() && std::isfinite(*value); };
  if (info.needs_baseline && !finite(inputs.samples[sample].baseline)) return false;
  if (!info.needs_components) return finite(inputs.samples[sample].score);
  const size_t width = options.component_weight.size();
  const auto components = inputs.components.subspan(sample * width, width);
  return std::all_of(components.begin(), components.end(), [](double value) { return std::isfinite(value); });
}

// Indices of the scored samples of each group, in the order of their numbers. Groups in the order of theirs.
std::map<uint64_t, std::vector<size_t>> ScoredGroups(const AdvantageInputs& inputs, std::span<const uint8_t> scored) {
  std::map<uint64_t, std::vector<size_t>> groups;
  for (size_t i = 0; i < scored.size(); ++i) {
    if (scored[i]) groups[inputs.samples[i].group].push_back(i);
  }
  const auto by_number = [&](size_t a, size_t b) {
    return inputs.batch.sequences[a].sample < inputs.batch.sequences[b].sample;
  };
  for (auto& [group, members] : groups) std::stable_sort(members.begin(), members.end(), by_number);
  return groups;
}

double TokenReward(const AdvantageInputs& inputs, int64_t token) {
  return inputs.token_rewards.empty() ? 0 : inputs.token_rewards[token];
}

double SampleTotal(const AdvantageInputs& inputs, size_t sample) {
  const Sequence& sequence = inputs.batch.sequences[sample];
  double total = 0;
  for (int64_t token = sequence.begin; token < sequence.end; ++token) {
    if (inputs.batch.Counts(token)) total += TokenReward(inputs, token);
  }
  return *inputs.samples[sample].score + total;
}

bool AllEqual(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [&](double value) { return value == values[0]; });
}

// One reward per sample: per component for an estimator that takes components, else the sample's total.
void ComputeGroup(const AdvantageOptions& options, const AdvantageInputs& inputs, const EstimatorRow& row,
                  std::span<const size_t> members, Advantages& result) {
  const size_t components = row.info.needs_components ? options.component_weight.size() : 1;
  std::vector<double> length, reward(members.size()), part(members.size()), advantage(members.size(), 0.0);
  for (const size_t sample : members) {
    length.push_back(static_cast<double>(CountedTokens(inputs.batch, inputs.batch.sequences[sample])));
  }
  bool flat = true;
  for (size_t k = 0; k < components; ++k) {
    for (size_t i = 0; i < members.size(); ++i) {
      reward[i] =
          row.info.needs_components ? inputs.components[members[i] * components + k] : SampleTotal(inputs, members[i]);
    }
    if (AllEqual(reward)) continue;
    flat = false;
    row.group_function(options, {reward, length}, part);
    const double weight = row.info.needs_components ? options.component_weight[k] : 1;
    for (size_t i = 0; i < members.size(); ++i) advantage[i] += weight * part[i];
  }
  result.counts.flat_groups += flat && members.size() > 1;
  result.sums.samples_in_flat_groups += flat ? static_cast<double>(members.size()) : 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const Sequence& sequence = inputs.batch.sequences[members[i]];
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (inputs.batch.Counts(token)) result.advantage[token] = result.returns[token] = advantage[i];
    }
  }
}

void ComputeSample(const AdvantageOptions& options, const AdvantageInputs& inputs, const EstimatorRow& row,
                   size_t sample, Advantages& result) {
  const Sequence& sequence = inputs.batch.sequences[sample];
  std::vector<int64_t> tokens;
  std::vector<double> reward, value;
  for (int64_t token = sequence.begin; token < sequence.end; ++token) {
    if (!inputs.batch.Counts(token)) continue;
    tokens.push_back(token);
    reward.push_back(TokenReward(inputs, token));
    value.push_back(row.info.needs_values ? inputs.values[token] : 0);
  }
  if (tokens.empty()) return;
  reward.back() += *inputs.samples[sample].score;
  std::vector<double> advantage(tokens.size()), returns(tokens.size());
  row.token_function(options, {reward, value, inputs.samples[sample].baseline.value_or(0)}, advantage, returns);
  for (size_t i = 0; i < tokens.size(); ++i) {
    result.advantage[tokens[i]] = advantage[i];
    result.returns[tokens[i]] = returns[i];
  }
}

// Calls visit(advantage) for the counted tokens of scored samples.
template <typename Visit>
void VisitScoredTokens(const AdvantageInputs& inputs, Advantages& advantages, Visit visit) {
  for (size_t i = 0; i < advantages.scored.size(); ++i) {
    if (!advantages.scored[i]) continue;
    const Sequence& sequence = inputs.batch.sequences[i];
    for (int64_t token = sequence.begin; token < sequence.end; ++token) {
      if (inputs.batch.Counts(token)) visit(advantages.advantage[token]);
    }
  }
}

}  // namespace

std::span<const AdvantageEstimatorInfo> AdvantageEstimators() {
  static const auto& infos = *new std::vector<AdvantageEstimatorInfo>([] {
    std::vector<AdvantageEstimatorInfo> result;
    for (const EstimatorRow& row : EstimatorRows()) result.push_back(row.info);
    return result;
  }());
  return infos;
}

const AdvantageEstimatorInfo& InfoOf(AdvantageEstimator estimator) { return RowOf(estimator).info; }

std::optional<AdvantageEstimator> ParseAdvantageEstimator(absl::string_view name) {
  for (const EstimatorRow& row : EstimatorRows()) {
    if (row.info.name == name) return row.info.estimator;
  }
  return std::nullopt;
}

absl::StatusOr<Advantages> ComputeAdvantages(const AdvantageOptions& options, const AdvantageInputs& inputs) {
  RETURN_IF_ERROR(Check(options, inputs));
  const EstimatorRow& row = RowOf(options.estimator);
  Advantages result;
  result.advantage.assign(inputs.batch.tokens, 0.0);
  result.returns.assign(inputs.batch.tokens, 0.0);
  for (size_t i = 0; i < inputs.samples.size(); ++i) {
    result.scored.push_back(IsScored(options, inputs, i));
    result.counts.failed_samples += !result.scored.back();
    result.sums.samples += result.scored.back();
  }
  const auto groups = ScoredGroups(inputs, result.scored);
  for (const auto& [group, members] : groups) {
    ++result.counts.groups;
    result.counts.groups_of_one += members.size() == 1;
    if (row.group_function != nullptr) {
      ComputeGroup(options, inputs, row, members, result);
    } else {
      for (const size_t sample : members) ComputeSample(options, inputs, row, sample, result);
    }
  }
  VisitScoredTokens(inputs, result, [&](double advantage) {
    result.sums.tokens += 1;
    result.sums.sum += advantage;
    result.sums.squares += advantage * advantage;
  });
  return result;
}

void FinishAdvantages(const AdvantageOptions& options, const AdvantageInputs& inputs, const AdvantageSums& total,
                      Advantages& advantages) {
  if (options.estimator == AdvantageEstimator::kGpg) {
    const double contributing = total.samples - total.samples_in_flat_groups;
    if (contributing == 0) return;  // all advantages are 0
    VisitScoredTokens(inputs, advantages, [&](double& advantage) { advantage *= total.samples / contributing; });
  }
  if (!InfoOf(options.estimator).whitens || total.tokens == 0) return;
  const double mean = total.sum / total.tokens;
  const double scatter = std::max(0.0, total.squares - total.sum * mean);
  const double variance = total.tokens > 1 ? scatter / (total.tokens - 1) : 0;
  const double scale = 1 / std::sqrt(variance + kWhitenEpsilon);
  VisitScoredTokens(inputs, advantages, [&](double& advantage) { advantage = (advantage - mean) * scale; });
}

void ClearFailed(std::span<const Sequence> sequences, std::span<const uint8_t> scored, std::span<uint8_t> mask) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!scored[i]) std::fill(mask.begin() + sequences[i].begin, mask.begin() + sequences[i].end, uint8_t{0});
  }
}

}  // namespace sluice::engine
