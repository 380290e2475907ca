#include "common/clock.h"

#include "absl/time/clock.h"

namespace sluice {

absl::Time RealClock::Now() const { return absl::Now(); }

void RealClock::WaitUntil(absl::Mutex* mutex, absl::CondVar* changed, absl::Time deadline) const {
  changed->WaitWithDeadline(mutex, deadline);
}

absl::Time FakeClock::Now() const {
  absl::MutexLock lock(&mutex_);
  return now_;
}

void FakeClock::WaitUntil(absl::Mutex* mutex, absl::CondVar* changed, absl::Time deadline) const {
  if (Now() >= deadline) return;
  changed->WaitWithTimeout(mutex, absl::Milliseconds(1));
}

void FakeClock::Advance(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  now_ += duration;
}

}  // namespace sluice
