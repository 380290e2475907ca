// For builds with ThreadSanitizer: tells it what absl::Mutex orders. The system's Abseil is not instrumented, so
// without this every access that a mutex guards would be reported as a race. The functions stand in front of Abseil's
// own, for our code and for gRPC's, which hands our data from thread to thread under the same mutexes.
#include <dlfcn.h>

#include "absl/synchronization/mutex.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace {

// Abseil's own function. No static guard with a lock in it: this runs under every lock.
template <typename Function>
Function Next(Function& cached, const char* mangled) {
  Function next = __atomic_load_n(&cached, __ATOMIC_ACQUIRE);
  if (next == nullptr) {
    next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, mangled));
    __atomic_store_n(&cached, next, __ATOMIC_RELEASE);
  }
  return next;
}

// While it unlocks or waits, a thread may evaluate the conditions of other waiters. It holds the mutex for that inside
// Abseil, which ThreadSanitizer does not see.
class IgnoreReads {
 public:
  IgnoreReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoreReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

}  // namespace

#define SLUICE_NEXT(mangled, result, ...) \
  static result (*cached)(__VA_ARGS__);   \
  const auto next = Next(cached, mangled)

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  SLUICE_NEXT("_ZN4absl7debian35Mutex4LockEv", void, Mutex*);
  next(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  SLUICE_NEXT("_ZN4absl7debian35Mutex6UnlockEv", void, Mutex*);
  __tsan_release(this);
  IgnoreReads ignore;
  next(this);
}

bool Mutex::TryLock() {
  SLUICE_NEXT("_ZN4absl7debian35Mutex7TryLockEv", bool, Mutex*);
  const bool locked = next(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::ReaderLock() {
  SLUICE_NEXT("_ZN4absl7debian35Mutex10ReaderLockEv", void, Mutex*);
  next(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  SLUICE_NEXT("_ZN4absl7debian35Mutex12ReaderUnlockEv", void, Mutex*);
  __tsan_release(this);
  IgnoreReads ignore;
  next(this);
}

void Mutex::Await(const Condition& condition) {
  SLUICE_NEXT("_ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE", void, Mutex*, const Condition&);
  __tsan_release(this);
  {
    IgnoreReads ignore;
    next(this, condition);
  }
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  SLUICE_NEXT("_ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE", bool, Mutex*,
              const Condition&, Duration);
  __tsan_release(this);
  bool held = false;
  {
    IgnoreReads ignore;
    held = next(this, condition, timeout);
  }
  __tsan_acquire(this);
  return held;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  SLUICE_NEXT("_ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE", bool, Mutex*, const Condition&,
              Time);
  __tsan_release(this);
  bool held = false;
  {
    IgnoreReads ignore;
    held = next(this, condition, deadline);
  }
  __tsan_acquire(this);
  return held;
}

void CondVar::Wait(Mutex* mutex) {
  SLUICE_NEXT("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE", void, CondVar*, Mutex*);
  __tsan_release(mutex);
  next(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  SLUICE_NEXT("_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE", bool, CondVar*, Mutex*, Duration);
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  SLUICE_NEXT("_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE", bool, CondVar*, Mutex*, Time);
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl
