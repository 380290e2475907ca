#include "engine/roles/metric_sums.h"

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

TEST(MetricSumsTest, MeansSumsAndExtremes) {
  MetricSums sums;
  sums.AddMean("mean", 1, 3);
  sums.AddMean("mean", 5, 1);
  sums.AddMean("nothing", 7, 0);
  sums.AddSum("sum", 2);
  sums.AddSum("sum", 3);
  for (const double value : {2.0, -1.0, 0.5}) sums.AddSpread("spread", value);
  Spread together;
  for (const double value : {4.0, 1.0}) together.Add(value);
  sums.AddSpread("together", together);
  sums.AddSpread("together", -2);
  sums.AddSpread("none", Spread());
  ASSERT_OK_AND_ASSIGN(const auto alone, Communicator::Create({}));
  ASSERT_OK_AND_ASSIGN(const auto numbers, sums.Reduce(*alone));
  const std::map<std::string, double> want = {{"mean", 2},         {"sum", 5},          {"spread/mean", 0.5},
                                              {"spread/max", 2},   {"spread/min", -1},  {"together/mean", 1},
                                              {"together/max", 4}, {"together/min", -2}};
  EXPECT_EQ(numbers, want);
}

}  // namespace
}  // namespace sluice::engine
