// Whether a response matches a regular expression of the user's, in bounded time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::engine {

// PCRE2 over UTF-8, where `.` matches line ends too. Immutable; threads may share it.
class ResponsePattern {
 public:
  // `full`: the whole response must match, else a part of it. kInvalidArgument names the place in the expression where
  // it is not well-formed. REQUIRES: match_limit >= 1.
  static absl::StatusOr<ResponsePattern> Compile(const std::string& pattern, bool full, uint32_t match_limit);

  // ResourceExhausted where the matcher takes more than match_limit steps (nested repeats on a long response), or more
  // than 64 MiB. Bytes that are no UTF-8 match nothing.
  absl::StatusOr<bool> Matches(std::string_view response) const;

 private:
  struct Compiled;

  std::shared_ptr<const Compiled> compiled_;
  uint32_t match_limit_ = 0;
};

}  // namespace sluice::engine
