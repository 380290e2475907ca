#include "engine/rollout/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

TEST(SamplingParamsTest, TheDefaultsAndTheBordersAreFine) {
  EXPECT_OK(Validate({}));
  EXPECT_OK(Validate({.temperature = 0,
                      .top_k = 1,
                      .top_p = 1e-9,
                      .min_p = 0.999,
                      .repetition_penalty = 1e-3,
                      .max_new_tokens = 1,
                      .min_new_tokens = 1}));
  EXPECT_OK(Validate({.top_k = 0}));
}

TEST(SamplingParamsTest, EachKeyIsNamed) {
  const auto expect = [](const SamplingParams& params, const char* message) {
    EXPECT_THAT(Validate(params), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  expect({.temperature = -1}, "temperature is -1");
  expect({.temperature = std::nan("")}, "temperature is nan");
  expect({.top_k = -2}, "top_k is -2");
  expect({.top_p = 1.5}, "top_p is 1.5");
  expect({.top_p = 0}, "top_p is 0");
  expect({.min_p = 1.1}, "min_p is 1.1");
  expect({.min_p = -0.1}, "min_p is -0.1");
  expect({.repetition_penalty = 0}, "repetition_penalty is 0");
  expect({.max_new_tokens = 0}, "max_new_tokens is 0");
  expect({.max_new_tokens = 4, .min_new_tokens = 5}, "min_new_tokens is 5");
  expect({.stop = {"a", ""}}, "stop holds an empty text");
}

}  // namespace
}  // namespace sluice::engine
