// Time as a dependency, so that tests drive it. RealClock is the machine's; FakeClock moves only when it is told to.
// Threads: all methods may be called from any thread.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sluice {

class Clock {
 public:
  virtual ~Clock() = default;

  virtual absl::Time Now() const = 0;

  // Waits until `changed` is signalled or Now() reaches `deadline`, whichever is first; may also return for no reason,
  // so callers loop over their condition and the deadline. REQUIRES: the caller holds `mutex`.
  virtual void WaitUntil(absl::Mutex* mutex, absl::CondVar* changed, absl::Time deadline) const = 0;
};

class RealClock final : public Clock {
 public:
  absl::Time Now() const override;
  void WaitUntil(absl::Mutex* mutex, absl::CondVar* changed, absl::Time deadline) const override;
};

// For tests. WaitUntil returns after a moment of real time whatever the deadline: its callers loop, and so notice
// Advance.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'000'000'000)) : now_(start) {}

  absl::Time Now() const override;
  void WaitUntil(absl::Mutex* mutex, absl::CondVar* changed, absl::Time deadline) const override;

  // Moves the time forward. REQUIRES: duration >= 0.
  void Advance(absl::Duration duration);

 private:
  mutable absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
