// A reward computed by a service of the user's: proto/sluice/v1/reward.proto.
//
// Requests go in batches, several at a time. A batch that fails with UNAVAILABLE, DEADLINE_EXCEEDED or
// RESOURCE_EXHAUSTED is sent again after a pause that doubles; once the attempts are used up each of its requests has
// kTimeout (the last failure was DEADLINE_EXCEEDED) or kUnavailable. Any other failure means that the service does not
// take such calls, and fails Score with its message.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/reward/reward.h"

namespace sluice::engine {

struct RemoteRewardOptions {
  std::string address;                         // host:port or unix:path
  absl::Duration timeout = absl::Seconds(60);  // of one attempt at one batch
  int max_attempts = 5;                        // of one batch, the first one included
  absl::Duration initial_backoff = absl::Milliseconds(200);
  absl::Duration max_backoff = absl::Seconds(10);
  int64_t batch_size = 64;  // requests in one call
  int concurrency = 4;      // calls at one time
};

// What the client takes from the world around it. Called from several threads at once.
struct RemoteRewardWorld {
  std::function<double()> uniform;           // random numbers in [0, 1)
  std::function<void(absl::Duration)> wait;  // the pause before an attempt
};
RemoteRewardWorld RealRemoteRewardWorld();

// The pause before attempt `attempt` (the second attempt is 1): uniform · min(max, initial · 2^(attempt − 1)), the
// "full jitter" of Brooker 2015 (Exponential Backoff and Jitter), so that many clients do not come back all at once.
// REQUIRES: attempt >= 1, uniform in [0, 1).
absl::Duration BackoffBefore(int attempt, const RemoteRewardOptions& options, double uniform);

// Does not connect; the first Score does. kInvalidArgument: an empty address, or an option below 1.
absl::StatusOr<std::unique_ptr<Reward>> MakeRemoteReward(const RemoteRewardOptions& options,
                                                         RemoteRewardWorld world = RealRemoteRewardWorld());

}  // namespace sluice::engine
