// Which events of a long job are given up, so that its history stays bounded. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "sluice/v1/types.pb.h"

namespace sluice::controller {

struct EventRetention {
  int64_t most = 20'000;  // events kept of one job
  int64_t slack = 2'000;  // a job is trimmed when it has so many more, so that trimming is rare
};

struct EventSummary {
  int64_t version = 0;
  bool progress = false;  // a step, a validation or a checkpoint; else a change of state or a note
};

EventSummary Summarize(const v1::JobEvent& event);

// The versions to remove so that at most `most` are left: progress first and, where that does not suffice, changes of
// state and notes; of each the oldest first. Never the first event, nor the last. `events` is all that a job has,
// oldest first. REQUIRES: most >= 2.
std::vector<int64_t> EventsToRemove(const std::vector<EventSummary>& events, int64_t most);

}  // namespace sluice::controller
