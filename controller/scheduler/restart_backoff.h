// How long a job waits between the loss of an attempt and the next one. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace sluice::controller {

struct RestartBackoff {
  absl::Duration first = absl::Seconds(1);    // after the first loss; zero: restarts never wait
  double factor = 2;                          // from each loss to the next
  absl::Duration longest = absl::Minutes(5);  // before the spread
  double spread = 0.2;  // up to this part longer or shorter, so that many jobs do not come at once
};

// The wait after `losses` lost attempts in a row, the last of them `attempt`. A loss is in a row with the one before it
// where no checkpoint was committed between them. The spread is a function of job and attempt. REQUIRES: losses >= 1,
// factor >= 1, 0 <= spread < 1.
absl::Duration RestartDelay(int32_t losses, const std::string& job_id, int32_t attempt, const RestartBackoff& backoff);

}  // namespace sluice::controller
