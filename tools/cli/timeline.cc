#include "tools/cli/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "tools/cli/output.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::ordered_json;
using Lane = std::pair<bool, std::string>;  // beside, pool

struct Times {
  absl::Time begin, end;
  absl::Duration length() const { return std::max(end - begin, absl::ZeroDuration()); }
};

Times TimesOf(const v1::StageSpan& span) { return {FromTimestamp(span.begin_time()), FromTimestamp(span.end_time())}; }

Times Within(const Times& times, const Times& window) {
  return {std::max(times.begin, window.begin), std::min(times.end, window.end)};
}

bool IsOfAStep(const v1::StageSpan& span) {
  return span.step() > 0 && span.op() != "infer_batch" && span.op() != "save_checkpoint";
}

// In the order in which they began, those of pools first.
std::vector<Lane> LanesOf(const std::vector<v1::StageSpan>& spans) {
  std::map<Lane, absl::Time> begun;
  for (const v1::StageSpan& span : spans) {
    const absl::Time begin = FromTimestamp(span.begin_time());
    for (const std::string& pool : span.pools()) {
      absl::Time& first = begun.try_emplace({span.beside(), pool}, begin).first->second;
      first = std::min(first, begin);
    }
  }
  std::vector<Lane> lanes;
  for (const auto& [lane, begin] : begun) lanes.push_back(lane);
  std::stable_sort(lanes.begin(), lanes.end(), [&](const Lane& a, const Lane& b) {
    return std::make_pair(a.first, begun.at(a)) < std::make_pair(b.first, begun.at(b));
  });
  return lanes;
}

std::string NameOf(const Lane& lane) { return lane.first ? lane.second + ", beside" : lane.second; }

// The time during which at least two of these ran.
absl::Duration TwoAtOnce(const std::vector<Times>& all) {
  std::vector<std::pair<absl::Time, int>> changes;
  for (const Times& times : all) {
    if (times.begin >= times.end) continue;
    changes.push_back({times.begin, 1});
    changes.push_back({times.end, -1});
  }
  std::sort(changes.begin(), changes.end());
  absl::Duration total;
  int running = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    if (running >= 2) total += changes[i].first - changes[i - 1].first;
    running += changes[i].second;
  }
  return total;
}

std::string Share(absl::Duration part, absl::Duration whole) {
  return absl::StrFormat("%.1f %%", whole > absl::ZeroDuration() ? 100 * absl::FDivDuration(part, whole) : 0.0);
}

}  // namespace

TimelineSummary Summarize(const std::vector<v1::StageSpan>& spans) {
  TimelineSummary summary;
  Times window = {absl::InfiniteFuture(), absl::InfinitePast()};
  std::set<int64_t> steps;
  for (const v1::StageSpan& span : spans) {
    if (!IsOfAStep(span)) continue;
    steps.insert(span.step());
    const Times times = TimesOf(span);
    window = {std::min(window.begin, times.begin), std::max(window.end, times.end)};
  }
  if (steps.empty()) return summary;
  summary.steps = static_cast<int64_t>(steps.size());
  summary.length = window.length();
  std::map<Lane, TimelineSummary::Row> rows;
  std::vector<Times> on_devices;
  for (const v1::StageSpan& span : spans) {
    const Times times = Within(TimesOf(span), window);
    if (times.length() == absl::ZeroDuration()) continue;
    if (!span.beside()) on_devices.push_back(times);
    for (const std::string& pool : span.pools()) {
      TimelineSummary::Row& row = rows[{span.beside(), pool}];
      row.busy += times.length();
      row.stages[span.stage()] += times.length();
    }
  }
  summary.at_once = TwoAtOnce(on_devices);
  for (const Lane& lane : LanesOf(spans)) {
    TimelineSummary::Row row = rows[lane];
    row.beside = lane.first;
    row.pool = lane.second;
    summary.rows.push_back(std::move(row));
  }
  return summary;
}

std::string FormatTimeline(const TimelineSummary& summary) {
  if (summary.steps == 0) return "no step has ended yet\n";
  std::vector<std::vector<std::string>> rows = {{"POOL", "BUSY", "WITH"}};
  for (const TimelineSummary::Row& row : summary.rows) {
    std::vector<std::pair<absl::Duration, std::string>> stages;
    for (const auto& [name, time] : row.stages) stages.push_back({-time, name});
    std::sort(stages.begin(), stages.end());  // the longest first
    const std::string with = absl::StrJoin(stages, ", ", [&](std::string* out, const auto& stage) {
      absl::StrAppend(out, stage.second, " ", Share(-stage.first, summary.length));
    });
    rows.push_back({NameOf({row.beside, row.pool}), Share(row.busy, summary.length), with});
  }
  return absl::StrFormat("%d %s in %.3f s; two stages or more on devices at once: %s of it\n%s", summary.steps,
                         summary.steps == 1 ? "step" : "steps", absl::ToDoubleSeconds(summary.length),
                         Share(summary.at_once, summary.length), FormatTable(rows));
}

std::string TimelineJson(const TimelineSummary& summary) {
  Json json = {{"steps", summary.steps},
               {"seconds", absl::ToDoubleSeconds(summary.length)},
               {"two_at_once_seconds", absl::ToDoubleSeconds(summary.at_once)},
               {"pools", Json::array()}};
  for (const TimelineSummary::Row& row : summary.rows) {
    Json stages = Json::object();
    for (const auto& [name, time] : row.stages) stages[name] = absl::ToDoubleSeconds(time);
    json["pools"].push_back({{"pool", row.pool},
                             {"beside", row.beside},
                             {"busy_seconds", absl::ToDoubleSeconds(row.busy)},
                             {"stage_seconds", std::move(stages)}});
  }
  return json.dump() + "\n";
}

std::string TraceJson(const std::vector<v1::StageSpan>& spans, const std::string& title) {
  const std::vector<Lane> lanes = LanesOf(spans);
  Json events = Json::array();
  events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"args", {{"name", title}}}});
  for (size_t i = 0; i < lanes.size(); ++i) {
    events.push_back(
        {{"ph", "M"}, {"name", "thread_name"}, {"pid", 0}, {"tid", i}, {"args", {{"name", NameOf(lanes[i])}}}});
    events.push_back(
        {{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", 0}, {"tid", i}, {"args", {{"sort_index", i}}}});
  }
  absl::Time first = absl::InfiniteFuture();
  for (const v1::StageSpan& span : spans) first = std::min(first, FromTimestamp(span.begin_time()));
  for (const v1::StageSpan& span : spans) {
    const Times times = TimesOf(span);
    for (const std::string& pool : span.pools()) {
      const auto lane = std::find(lanes.begin(), lanes.end(), Lane{span.beside(), pool});
      events.push_back({{"ph", "X"},
                        {"name", span.stage()},
                        {"cat", span.op()},
                        {"pid", 0},
                        {"tid", lane - lanes.begin()},
                        {"ts", absl::ToDoubleMicroseconds(times.begin - first)},
                        {"dur", absl::ToDoubleMicroseconds(times.length())},
                        {"args", {{"step", span.step()}}}});
    }
  }
  Json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  if (!spans.empty()) trace["otherData"] = {{"begin_time", absl::FormatTime(first, absl::UTCTimeZone())}};
  return trace.dump() + "\n";
}

}  // namespace sluice::cli
