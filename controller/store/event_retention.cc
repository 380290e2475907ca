#include "controller/store/event_retention.h"

namespace sluice::controller {

EventSummary Summarize(const v1::JobEvent& event) {
  return {event.resource_version(), event.detail_case() != v1::JobEvent::DETAIL_NOT_SET};
}

std::vector<int64_t> EventsToRemove(const std::vector<EventSummary>& events, int64_t most) {
  const int64_t count = static_cast<int64_t>(events.size());
  std::vector<int64_t> removed;
  for (const bool progress : {true, false}) {
    for (int64_t i = 1; i + 1 < count && count - static_cast<int64_t>(removed.size()) > most; ++i) {
      if (events[i].progress == progress) removed.push_back(events[i].version);
    }
  }
  return removed;
}

}  // namespace sluice::controller
