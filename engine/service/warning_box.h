// The warnings of an engine on their way to its user: they leave with the answer of the next stage. The log has all of
// them.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sluice::engine {

// Thread-safe.
class WarningBox {
 public:
  // So many warnings pass, and one more that says that the others are in the log alone.
  static constexpr size_t kMost = 20;

  // A warning that says with other numbers what one before it said is left out: what is wrong in every step is told
  // once.
  void Add(std::string_view message);

  // What was added since the last call, each on one line, in order.
  std::vector<std::string> Take();

 private:
  absl::Mutex mutex_;
  std::set<std::string> seen_ ABSL_GUARDED_BY(mutex_);  // without their numbers
  std::vector<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::engine
