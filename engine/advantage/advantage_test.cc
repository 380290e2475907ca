#include "engine/advantage/advantage.h"

#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "common/testing/status_matchers.h"
#include "engine/loss/testing/golden.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::Numbers;
using testing::Tolerance;

AdvantageOptions OptionsOf(const nlohmann::json& c) {
  AdvantageOptions options = {.estimator = *ParseAdvantageEstimator(c.at("estimator").get<std::string>())};
  const auto& o = c.at("options");
  options.gamma = o.value("gamma", 1.0);
  options.lam = o.value("lam", 1.0);
  options.norm_adv_by_std_in_grpo = o.value("norm_adv_by_std_in_grpo", true);
  if (o.contains("component_weight")) options.component_weight = Numbers<double>(o.at("component_weight"));
  return options;
}

// The golden batch, or some of its samples in some order, as a rank holds them. Masked places are NaN.
struct Rank {
  std::vector<Sequence> sequences;
  std::vector<uint8_t> mask;
  std::vector<SampleReward> samples;
  std::vector<float> token_rewards, values;
  std::vector<double> components;

  AdvantageInputs Inputs(const AdvantageOptions& options) const {
    const AdvantageEstimatorInfo& info = InfoOf(options.estimator);
    AdvantageInputs inputs = {.batch = {sequences, static_cast<int64_t>(mask.size()), mask}, .samples = samples};
    if (!info.needs_components) inputs.token_rewards = token_rewards;
    if (info.needs_values) inputs.values = values;
    if (info.needs_components) inputs.components = components;
    return inputs;
  }
};

Rank Take(const nlohmann::json& batch, const std::vector<size_t>& order) {
  const testing::OwnedBatch all(batch);
  const auto token_rewards = Numbers(batch.at("token_rewards")), values = Numbers(batch.at("values"));
  Rank rank;
  for (const size_t i : order) {
    const auto begin = static_cast<int64_t>(rank.mask.size());
    for (int64_t t = all.sequences[i].begin; t < all.sequences[i].end; ++t) {
      rank.mask.push_back(all.mask[t]);
      rank.token_rewards.push_back(token_rewards[t]);
      rank.values.push_back(values[t]);
    }
    rank.sequences.push_back({begin, static_cast<int64_t>(rank.mask.size()), i});
    SampleReward sample = {.group = batch.at("group")[i], .baseline = batch.at("baseline")[i].get<double>()};
    const auto components = Numbers<double>(batch.at("components")[i]);
    rank.components.insert(rank.components.end(), components.begin(), components.end());
    if (batch.at("score")[i].is_null()) {
      rank.components.back() = NAN;
    } else {
      sample.score = batch.at("score")[i].get<double>();
    }
    rank.samples.push_back(sample);
  }
  return rank;
}

std::vector<size_t> All(const nlohmann::json& batch) {
  std::vector<size_t> order(batch.at("lengths").size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// [sample][counted token] of a rank's result, added to `by_sample`.
void Collect(const Rank& rank, const std::vector<double>& per_token, std::vector<std::vector<double>>& by_sample) {
  for (const Sequence& sequence : rank.sequences) {
    for (int64_t t = sequence.begin; t < sequence.end; ++t) {
      if (rank.mask[t]) {
        by_sample[sequence.sample].push_back(per_token[t]);
      } else {
        EXPECT_EQ(per_token[t], 0);
      }
    }
  }
}

using PerSample = std::vector<std::vector<double>>;
struct Both {
  PerSample advantage, returns;
};

Both RunOnRanks(const AdvantageOptions& options, const std::vector<Rank>& ranks, size_t samples) {
  std::vector<Advantages> parts;
  AdvantageSums total;
  for (const Rank& rank : ranks) {
    auto part = ComputeAdvantages(options, rank.Inputs(options));
    EXPECT_OK(part);
    total += part->sums;
    parts.push_back(*std::move(part));
  }
  Both result = {PerSample(samples), PerSample(samples)};
  for (size_t i = 0; i < ranks.size(); ++i) {
    FinishAdvantages(options, ranks[i].Inputs(options), total, parts[i]);
    Collect(ranks[i], parts[i].advantage, result.advantage);
    Collect(ranks[i], parts[i].returns, result.returns);
  }
  return result;
}

void ExpectNear(const std::vector<double>& got, const nlohmann::json& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t t = 0; t < got.size(); ++t) EXPECT_NEAR(got[t], want[t].get<double>(), Tolerance(want[t])) << t;
}

TEST(AdvantageTest, EqualsTheOracle) {
  const nlohmann::json golden = testing::ReadGolden("advantages.json");
  const auto& batch = golden.at("batch");
  const auto kept = golden.at("kept").get<std::vector<size_t>>();
  std::set<std::string> seen;
  for (const auto& c : golden.at("cases")) {
    SCOPED_TRACE(c.at("estimator").get<std::string>() + c.at("options").dump());
    seen.insert(c.at("estimator"));
    const auto order = All(batch);
    const Both result = RunOnRanks(OptionsOf(c), {Take(batch, order)}, order.size());
    for (size_t k = 0; k < kept.size(); ++k) {
      ExpectNear(result.advantage[kept[k]], c.at("advantage")[k]);
      if (!c.at("returns").is_null()) ExpectNear(result.returns[kept[k]], c.at("returns")[k]);
    }
    for (const size_t failed : {2u, 6u}) {
      for (const double advantage : result.advantage[failed]) EXPECT_EQ(advantage, 0);
    }
  }
  EXPECT_EQ(seen.size(), AdvantageEstimators().size());
}

// Group baselines are the same bits in any order; whitening's sums, added up in another order, agree to rounding.
TEST(AdvantageTest, OrderAndRanksChangeNothing) {
  const nlohmann::json golden = testing::ReadGolden("advantages.json");
  const auto& batch = golden.at("batch");
  const auto order = All(batch);
  for (const auto& c : golden.at("cases")) {
    SCOPED_TRACE(c.at("estimator").get<std::string>() + c.at("options").dump());
    const AdvantageOptions options = OptionsOf(c);
    const Both whole = RunOnRanks(options, {Take(batch, order)}, order.size());
    const Both ranks = RunOnRanks(
        options, {Take(batch, {9, 8, 10}), Take(batch, {6, 3, 0, 7}), Take(batch, {}), Take(batch, {5, 2, 4, 1})},
        order.size());
    const Both split =
        RunOnRanks(options, {Take(batch, {10, 3, 2, 8, 0, 9, 1}), Take(batch, {7, 5, 4, 6})}, order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      for (size_t t = 0; t < whole.advantage[i].size(); ++t) {
        const double want = whole.advantage[i][t];
        // Rank-local groups only: the first split breaks groups 0 and 3.
        if (!InfoOf(options.estimator).needs_groups) {
          EXPECT_NEAR(ranks.advantage[i][t], want, 1e-12);
        }
        if (InfoOf(options.estimator).whitens) {
          EXPECT_NEAR(split.advantage[i][t], want, 1e-12);
        } else {
          EXPECT_EQ(split.advantage[i][t], want);
        }
      }
    }
  }
}

// The field's trouble case L04.
class GroupRewardsTest : public ::testing::Test {
 protected:
  static Advantages Compute(AdvantageEstimator estimator, const std::vector<std::optional<double>>& scores,
                            bool norm_by_std = true) {
    std::vector<Sequence> sequences;
    std::vector<SampleReward> samples;
    for (size_t i = 0; i < scores.size(); ++i) {
      sequences.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i + 1), i});
      samples.push_back({.group = 5, .score = scores[i], .baseline = 0.0});
    }
    const AdvantageOptions options = {.estimator = estimator, .norm_adv_by_std_in_grpo = norm_by_std};
    const AdvantageInputs inputs = {.batch = {sequences, static_cast<int64_t>(scores.size()), {}}, .samples = samples};
    auto result = ComputeAdvantages(options, inputs);
    EXPECT_OK(result);
    FinishAdvantages(options, inputs, result->sums, *result);
    return *result;
  }

  static std::vector<std::optional<double>> Scores(const nlohmann::json& rewards) {
    std::vector<std::optional<double>> scores;
    for (const auto& reward : rewards) {
      scores.push_back(reward.is_null() ? std::nullopt : std::optional<double>(testing::Number(reward)));
    }
    return scores;
  }

  const nlohmann::json golden_ = testing::ReadGolden("l04.json");
};

TEST_F(GroupRewardsTest, UsualCloseLargeAndEqualGroups) {
  const auto near = [](const std::vector<double>& got, const nlohmann::json& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i].get<double>(), 1e-6);
  };
  for (const auto& c : golden_.at("groups")) {
    SCOPED_TRACE(c.at("group"));
    const auto scores = Scores(c.at("rewards"));
    if (c.contains("outcome")) {
      for (const auto estimator :
           {AdvantageEstimator::kGrpo, AdvantageEstimator::kRloo, AdvantageEstimator::kOpo, AdvantageEstimator::kGpg,
            AdvantageEstimator::kGrpoPassk, AdvantageEstimator::kReinforcePlusPlusBaseline}) {
        const Advantages result = Compute(estimator, scores);
        EXPECT_EQ(result.advantage, std::vector<double>{0.0}) << InfoOf(estimator).name;
        EXPECT_EQ(result.counts.groups_of_one, 1);
      }
      continue;
    }
    near(Compute(AdvantageEstimator::kGrpo, scores).advantage, c.at("grpo"));
    near(Compute(AdvantageEstimator::kGrpo, scores, /*norm_by_std=*/false).advantage, c.at("dr_grpo_without_std"));
    near(Compute(AdvantageEstimator::kRloo, scores).advantage, c.at("rloo"));
  }
}

TEST_F(GroupRewardsTest, EqualRewardsAreExactlyZero) {
  for (const AdvantageEstimatorInfo& info : AdvantageEstimators()) {
    if (!info.needs_groups || info.needs_components) continue;
    const Advantages result = Compute(info.estimator, std::vector<std::optional<double>>(7, 0.35));
    EXPECT_EQ(result.advantage, std::vector<double>(7, 0.0)) << info.name;
    EXPECT_EQ(result.counts.flat_groups, 1);
  }
}

TEST_F(GroupRewardsTest, FailedRewardsLeaveTheGroupAndTheLoss) {
  for (const auto& c : golden_.at("groups_with_bad_rewards")) {
    SCOPED_TRACE(c.at("group"));
    const auto scores = Scores(c.at("rewards"));
    const Advantages result = Compute(AdvantageEstimator::kGrpo, scores);
    std::vector<uint8_t> mask(scores.size(), 1);
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < scores.size(); ++i) {
      sequences.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i + 1), i});
    }
    ClearFailed(sequences, result.scored, mask);
    int64_t failed = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_NEAR(result.advantage[i], c.at("grpo")[i].get<double>(), 1e-6);
      const bool good = scores[i].has_value() && std::isfinite(*scores[i]);
      failed += !good;
      EXPECT_EQ(mask[i], good);
    }
    EXPECT_EQ(result.counts.failed_samples, failed);
  }
}

TEST(AdvantageTest, NamesTheWrongArgument) {
  const std::vector<Sequence> sequences = {{0, 1, 0}};
  const std::vector<SampleReward> samples = {{.group = 0, .score = 1.0}};
  const AdvantageInputs inputs = {.batch = {sequences, 1, {}}, .samples = samples};
  const auto wrong = [&](const AdvantageOptions& options, const AdvantageInputs& in, const char* name) {
    EXPECT_THAT(ComputeAdvantages(options, in), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  };
  wrong({.gamma = 1.5}, inputs, "algorithm.gamma");
  wrong({.lam = -1}, inputs, "algorithm.lam");
  wrong({.estimator = AdvantageEstimator::kGae}, inputs, "values");
  wrong({.estimator = AdvantageEstimator::kGdpo}, inputs, "component");
  wrong({}, {.batch = {sequences, 1, {}}}, "samples has 0 elements");
  // Without a greedy response's score a sample has failed; it is no error of the call.
  const auto remax = ComputeAdvantages({.estimator = AdvantageEstimator::kRemax}, inputs);
  ASSERT_OK(remax);
  EXPECT_EQ(remax->counts.failed_samples, 1);
}

TEST(AdvantageTest, NamesAreRead) {
  for (const AdvantageEstimatorInfo& info : AdvantageEstimators()) {
    EXPECT_EQ(ParseAdvantageEstimator(info.name), info.estimator);
  }
  EXPECT_EQ(ParseAdvantageEstimator("ppo"), std::nullopt);
}

}  // namespace
}  // namespace sluice::engine
