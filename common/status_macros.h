// Early return on error. Used everywhere a Status or StatusOr is produced; there are no other error macros.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::status_macros_internal {
inline absl::Status ToStatus(absl::Status status) { return status; }
template <typename T>
absl::Status ToStatus(const absl::StatusOr<T>& result) {
  return result.status();
}
}  // namespace sluice::status_macros_internal

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// RETURN_IF_ERROR(expr): returns expr's status from the enclosing function unless it is OK.
#define RETURN_IF_ERROR(expr)                                                          \
  do {                                                                                 \
    absl::Status status_or_error = ::sluice::status_macros_internal::ToStatus((expr)); \
    if (!status_or_error.ok()) return status_or_error;                                 \
  } while (false)

// ASSIGN_OR_RETURN(auto x, expr): declares or assigns x from expr's value, or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_INNER(SLUICE_CONCAT(status_or_value_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(result, lhs, expr) \
  auto result = (expr);                           \
  if (!result.ok()) return result.status();       \
  lhs = std::move(result).value()
