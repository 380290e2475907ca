#include "engine/advantage/kl_penalty.h"

#include <cmath>
#include <vector>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

constexpr KlType kK1 = {KlEstimator::kK1, false};

TEST(KlPenaltyTest, SubtractsFromCountedTokensOnly) {
  const std::vector<Sequence> sequences = {{0, 3, 0}, {3, 4, 1}, {4, 5, 2}};
  const std::vector<uint8_t> mask = {1, 0, 1, 1, 0};
  const std::vector<float> log_prob = {-1.0f, NAN, -2.0f, -0.5f, NAN};
  const std::vector<float> ref = {-1.5f, NAN, -1.0f, -0.75f, NAN};
  std::vector<float> rewards = {0, 5, 1, 2, 6};
  ASSERT_OK_AND_ASSIGN(const WeightedSum kl, ApplyKlPenalty(kK1, 0.1, {{sequences, 5, mask}, log_prob, ref}, rewards));
  EXPECT_THAT(rewards, ElementsAre(FloatEq(-0.05f), 5, FloatEq(1.1f), FloatEq(1.975f), 6));
  // The mean of the sequences' means (0.5 - 1) / 2 and 0.25; the empty sequence counts nowhere.
  EXPECT_EQ(kl.weight, 2);
  EXPECT_DOUBLE_EQ(kl.Mean(), 0.0);
}

TEST(KlPenaltyTest, NamesTheWrongArray) {
  const std::vector<Sequence> sequences = {{0, 1, 0}};
  const std::vector<float> one = {0};
  std::vector<float> rewards = {0, 0};
  EXPECT_THAT(ApplyKlPenalty(kK1, 0.1, {{sequences, 1, {}}, one, one}, rewards),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token_rewards")));
}

TEST(KlControllerTest, FixedStays) {
  const KlControllerOptions options = {.kl_coef = 0.3};
  const KlControllerState state = InitialKlControllerState(options);
  EXPECT_EQ(UpdateKlController(options, state, 100, 1000).kl_coef, 0.3);
}

TEST(KlControllerTest, AdaptiveFollowsItsErrorWithinBounds) {
  const KlControllerOptions options = {
      .type = KlControllerType::kAdaptive, .kl_coef = 0.2, .target_kl = 0.1, .horizon = 1000};
  const KlControllerState state = InitialKlControllerState(options);
  EXPECT_DOUBLE_EQ(UpdateKlController(options, state, 0.11, 100).kl_coef, 0.2 * (1 + 0.1 * 0.1));
  EXPECT_DOUBLE_EQ(UpdateKlController(options, state, 5.0, 100).kl_coef, 0.2 * (1 + 0.2 * 0.1));
  EXPECT_DOUBLE_EQ(UpdateKlController(options, state, 0.0, 100).kl_coef, 0.2 * (1 - 0.2 * 0.1));
  EXPECT_EQ(UpdateKlController(options, state, NAN, 100).kl_coef, 0.2);
}

TEST(KlControllerTest, NamesTheWrongKey) {
  EXPECT_THAT(Validate(KlControllerOptions{.kl_coef = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("kl_coef")));
  EXPECT_THAT(Validate(KlControllerOptions{.type = KlControllerType::kAdaptive, .target_kl = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("target_kl")));
  EXPECT_OK(Validate(KlControllerOptions{.target_kl = 0}));
}

}  // namespace
}  // namespace sluice::engine
