#include "common/schedule/lr_schedule.h"

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

// Rates written down by closed formulas in double precision; the file says which.
nlohmann::json Golden() {
  std::ifstream file("tests/golden/schedules/s01.json");
  return nlohmann::json::parse(file);
}

ScheduleOptions OptionsOf(const nlohmann::json& c) {
  const std::map<std::string, DecayStyle> styles = {{"constant", DecayStyle::kConstant},
                                                    {"linear", DecayStyle::kLinear},
                                                    {"cosine", DecayStyle::kCosine},
                                                    {"inverse-square-root", DecayStyle::kInverseSquareRoot},
                                                    {"WSD", DecayStyle::kWarmupStableDecay}};
  ScheduleOptions options;
  options.style = styles.at(c.at("kind"));
  options.lr = c.value("lr", 1.0);
  options.init_lr_ratio = c.value("init_lr_ratio", 0.0);
  options.min_lr_ratio = c.value("min_lr_ratio", 0.0);
  options.warmup_steps = c.value("W", c.value("lr_warmup_steps", int64_t{-1}));
  options.warmup_ratio = c.value("lr_warmup_steps_ratio", 0.0);
  options.decay_steps = c.value("wsd", int64_t{0});
  options.stable_decay_style = StableDecayStyle::kLinear;
  return options;
}

TEST(ScheduleTest, RatesOfTheGoldenCases) {
  const nlohmann::json golden = Golden();
  ASSERT_GE(golden.at("cases").size(), 12u);
  for (const auto& c : golden.at("cases")) {
    SCOPED_TRACE(c.at("case").get<std::string>());
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, Schedule::Create(OptionsOf(c), c.at("T")));
    const auto rates = c.at("lr_of_update").get<std::vector<double>>();
    const double tolerance = 1e-11 * c.value("lr", 1.0);
    for (size_t k = 0; k < rates.size(); ++k) {
      EXPECT_NEAR(schedule.LearningRate(static_cast<int64_t>(k) + 1), rates[k], tolerance) << "update " << k + 1;
    }
  }
}

TEST(ScheduleTest, LimitsOfTheGoldenCases) {
  std::map<std::string, nlohmann::json> limits;
  const nlohmann::json golden = Golden();
  for (const auto& c : golden.at("limits")) limits[c.at("case")] = c;
  const auto create = [&](const std::string& name) {
    return Schedule::Create(OptionsOf(limits.at(name)), limits.at(name).at("T"));
  };
  for (const std::string name : {"warmup_equals_total", "warmup_longer_than_total"}) {
    EXPECT_THAT(create(name),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("optim.lr_warmup_steps: warm-up")));
  }
  EXPECT_THAT(create("ratio_one"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lr_warmup_steps_ratio: warm-up")));
  EXPECT_THAT(create("no_updates"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no update")));
  ASSERT_OK_AND_ASSIGN(const Schedule by_ratio, create("ratio_and_steps"));
  EXPECT_EQ(by_ratio.warmup_steps(), 2);
  ASSERT_OK_AND_ASSIGN(const Schedule by_steps, create("steps_win"));
  EXPECT_EQ(by_steps.warmup_steps(), 4);
}

TEST(ScheduleTest, ShapesOfTheStableDecay) {
  ScheduleOptions options;
  options.lr = 1;
  options.min_lr_ratio = 0;
  options.style = DecayStyle::kWarmupStableDecay;
  options.decay_steps = 4;
  const std::map<StableDecayStyle, double> halfway = {{StableDecayStyle::kLinear, 0.5},
                                                      {StableDecayStyle::kCosine, 0.5},
                                                      {StableDecayStyle::kExponential, 2 * std::sqrt(0.5) - 1},
                                                      {StableDecayStyle::kMinusSqrt, 1 - std::sqrt(0.5)}};
  for (const auto& [style, factor] : halfway) {
    options.stable_decay_style = style;
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, Schedule::Create(options, 10));
    EXPECT_DOUBLE_EQ(schedule.LearningRate(7), 1);         // n = 6 = T - D: the last full rate
    EXPECT_NEAR(schedule.LearningRate(9), factor, 1e-15);  // n = 8: half of the decay
    EXPECT_NEAR(schedule.LearningRate(11), 0, 1e-15);      // n = T
    EXPECT_DOUBLE_EQ(schedule.LearningRate(12), 0);        // past the end
  }
}

TEST(ScheduleTest, StableDecayMustFitBehindTheWarmup) {
  ScheduleOptions options;
  options.style = DecayStyle::kWarmupStableDecay;
  options.warmup_steps = 3;
  for (const auto& [decay_steps, fits] : std::map<int64_t, bool>{{0, false}, {1, true}, {7, true}, {8, false}}) {
    options.decay_steps = decay_steps;
    EXPECT_EQ(Schedule::Create(options, 10).ok(), fits) << decay_steps;
  }
}

TEST(ScheduleTest, WeightDecayMovesFromStartToEnd) {
  ScheduleOptions options;
  options.start_weight_decay = 0.1;
  options.end_weight_decay = 0.5;
  options.weight_decay_style = WeightDecayStyle::kLinear;
  ASSERT_OK_AND_ASSIGN(const Schedule linear, Schedule::Create(options, 8));
  EXPECT_DOUBLE_EQ(linear.WeightDecay(1), 0.1);
  EXPECT_DOUBLE_EQ(linear.WeightDecay(3), 0.2);  // n = 2 of 8
  EXPECT_DOUBLE_EQ(linear.WeightDecay(9), 0.5);
  EXPECT_DOUBLE_EQ(linear.WeightDecay(20), 0.5);

  options.weight_decay_style = WeightDecayStyle::kCosine;
  ASSERT_OK_AND_ASSIGN(const Schedule cosine, Schedule::Create(options, 8));
  EXPECT_NEAR(cosine.WeightDecay(1), 0.1, 1e-15);
  EXPECT_NEAR(cosine.WeightDecay(3), 0.1 + 0.4 * 0.5 * (1 + std::cos(std::numbers::pi * 0.75)), 1e-15);
  EXPECT_NEAR(cosine.WeightDecay(5), 0.3, 1e-15);

  options.weight_decay_style = WeightDecayStyle::kConstant;
  EXPECT_THAT(Schedule::Create(options, 8), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("wd_incr_style")));
  options.end_weight_decay = 0.1;
  ASSERT_OK_AND_ASSIGN(const Schedule constant, Schedule::Create(options, 8));
  EXPECT_DOUBLE_EQ(constant.WeightDecay(8), 0.1);
}

TEST(ScheduleTest, NamesTheValueThatIsOutOfRange) {
  const auto error = [](auto change) {
    ScheduleOptions options;
    change(&options);
    return Schedule::Create(options, 10).status();
  };
  EXPECT_THAT(error([](auto* o) { o->lr = -1; }), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("optim.lr:")));
  EXPECT_THAT(error([](auto* o) { o->lr = std::nan(""); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("optim.lr:")));
  EXPECT_THAT(error([](auto* o) { o->init_lr_ratio = 1.5; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("init_lr_ratio")));
  EXPECT_THAT(error([](auto* o) { o->min_lr_ratio = -0.1; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("min_lr_ratio")));
}

}  // namespace
}  // namespace sluice
