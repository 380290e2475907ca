// GoogleTest matchers for Status and StatusOr.
//   ASSERT_OK(expr);  EXPECT_OK(expr);  ASSERT_OK_AND_ASSIGN(auto x, expr);
//   EXPECT_THAT(expr, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rstd")));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status_macros.h"

namespace sluice::testing {

MATCHER(IsOk, "is OK") {
  const absl::Status status = ::sluice::status_macros_internal::ToStatus(arg);
  *result_listener << status;
  return status.ok();
}

MATCHER_P2(StatusIs, code, message_matcher, "") {
  const absl::Status status = ::sluice::status_macros_internal::ToStatus(arg);
  *result_listener << status;
  return status.code() == code &&
         ::testing::ExplainMatchResult(message_matcher, std::string(status.message()), result_listener);
}

}  // namespace sluice::testing

#define ASSERT_OK(expr) ASSERT_THAT((expr), ::sluice::testing::IsOk())
#define EXPECT_OK(expr) EXPECT_THAT((expr), ::sluice::testing::IsOk())
#define ASSERT_OK_AND_ASSIGN(lhs, expr) ASSERT_OK_AND_ASSIGN_INNER(SLUICE_CONCAT(status_or_value_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_INNER(result, lhs, expr) \
  auto result = (expr);                               \
  ASSERT_OK(result);                                  \
  lhs = std::move(result).value()
