#include "common/failpoint.h"

#include <signal.h>
#include <stdlib.h>

#include <cstdio>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"

namespace sluice {
namespace {

class Failpoints {
 public:
  Failpoints() {
    const char* text = getenv("SLUICE_FAILPOINTS");
    if (text != nullptr) passes_left_ = ParseFailpoints(text);
    armed_ = !passes_left_.empty();
  }

  void Pass(const char* name) {
    if (!armed_) return;
    absl::MutexLock lock(&mutex_);
    const auto found = passes_left_.find(name);
    if (found == passes_left_.end() || --found->second != 0) return;
    std::fprintf(stderr, "failpoint %s: ending by SIGKILL\n", name);
    raise(SIGKILL);
  }

 private:
  bool armed_ = false;  // constant after construction
  absl::Mutex mutex_;
  std::map<std::string, int64_t> passes_left_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void Failpoint(const char* name) {
  static Failpoints* const failpoints = new Failpoints();
  failpoints->Pass(name);
}

std::map<std::string, int64_t> ParseFailpoints(std::string_view text) {
  std::map<std::string, int64_t> failpoints;
  for (absl::string_view entry :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    int64_t passes = 0;
    if (absl::SimpleAtoi(parts.second, &passes) && passes > 0) failpoints[std::string(parts.first)] = passes;
  }
  return failpoints;
}

}  // namespace sluice
