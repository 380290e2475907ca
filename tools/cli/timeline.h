// When the stages of a job ran: for people, and as a file for a trace viewer. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "sluice/v1/types.pb.h"

namespace sluice::cli {

// Of the time of the steps, from the first one's beginning to the last one's end: what comes before and after, such as
// loading, is left out; validations and checkpoints between steps are in it.
struct TimelineSummary {
  // What runs one stage at a time: a pool's ranks, or what runs beside their stages and needs no device.
  struct Row {
    std::string pool;
    bool beside = false;
    absl::Duration busy;
    std::map<std::string, absl::Duration> stages;  // `busy`, by the stage's name
  };
  int64_t steps = 0;  // 0: no step has ended, and nothing else is set
  absl::Duration length;
  absl::Duration at_once;  // two or more stages ran on devices
  std::vector<Row> rows;   // pools in the order in which they began, then what ran beside
};

TimelineSummary Summarize(const std::vector<v1::StageSpan>& spans);

// A table: how busy each row was, and with what, as shares of the length.
std::string FormatTimeline(const TimelineSummary& summary);
// The same as one JSON object, on one line; times in seconds.
std::string TimelineJson(const TimelineSummary& summary);

// Trace Event Format (JSON object form), which ui.perfetto.dev and chrome://tracing open: a row for each pool and one
// for what ran beside it; times in microseconds from the beginning of the first stage, which otherData.begin_time is
// (RFC 3339). `title`: of the whole.
std::string TraceJson(const std::vector<v1::StageSpan>& spans, const std::string& title);

}  // namespace sluice::cli
