#include "engine/loss/kl_estimator.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/loss/testing/golden.h"

namespace sluice::engine {
namespace {

TEST(KlEstimatorTest, ValuesAndGradientsEqualTheOracle) {
  const nlohmann::json golden = testing::ReadGolden("kl_values.json");
  ASSERT_EQ(golden.at("cases").size(), 8u);
  for (const auto& c : golden.at("cases")) {
    const auto type = ParseKlType(c.at("type").get<std::string>());
    ASSERT_TRUE(type.has_value()) << c.at("type");
    for (size_t i = 0; i < c.at("value").size(); ++i) {
      const KlTerm term = EstimateKl(*type, golden.at("log_prob"), c.at("ref_log_prob")[i]);
      const double value = c.at("value")[i], derivative = c.at("d_log_prob")[i];
      EXPECT_NEAR(term.value, value, testing::Tolerance(value)) << c.at("type") << " " << i;
      EXPECT_NEAR(term.d_log_prob, derivative, testing::Tolerance(derivative)) << c.at("type") << " " << i;
    }
  }
}

TEST(KlEstimatorTest, SynonymsAreOneType) {
  EXPECT_EQ(ParseKlType("kl"), ParseKlType("k1"));
  EXPECT_EQ(ParseKlType("mse+"), ParseKlType("k2+"));
  EXPECT_EQ(ParseKlType("low_var_kl"), ParseKlType("k3"));
  EXPECT_NE(ParseKlType("k3"), ParseKlType("k3+"));
  EXPECT_EQ(ParseKlType("full"), std::nullopt);
}

}  // namespace
}  // namespace sluice::engine
