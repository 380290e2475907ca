// The values of the metrics in the catalogue, and their text form. One object for each program.
//   metrics.Increment(MetricId::kJobTransitions, {"QUEUED", "ADMITTED", "none"});
//   metrics.Set(MetricId::kTrainLoss, {job_id}, loss);
//   metrics.Remove(MetricId::kTrainLoss, {job_id});   // when the job has ended
// Label values may hold any bytes: what is not UTF-8 becomes U+FFFD, and the text form escapes what must be escaped, so
// that one odd value never spoils the page. Values longer than 1024 bytes are cut at a character and end in `...`.
// Threads: all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics_catalogue.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace sluice {

class Metrics final : public prometheus::Collectable {
 public:
  using Labels = std::vector<std::string>;  // values, in the catalogue's order of labels

  // Exports the metrics of `role` and the common ones; kBoth (as in `sluice run`) exports all. Those without labels
  // that count start at 0; build_info, the process metrics and the log's counts need no calls.
  explicit Metrics(MetricRole role);

  // REQUIRES of all four: the metric's type fits, labels.size() equals its number of labels. A violation is a
  // programmer's error and aborts in debug builds; release builds ignore the call. Metrics of another role are ignored
  // too.
  void Increment(MetricId id, const Labels& labels = {}, double by = 1);
  void Set(MetricId id, const Labels& labels, double value);
  void Observe(MetricId id, const Labels& labels, double value);

  // Ends the series of these labels. Nothing happens where there is none.
  void Remove(MetricId id, const Labels& labels);

  // The value of a counter or gauge, or the number of observations of a histogram; 0 where there is no such series.
  double ValueForTest(MetricId id, const Labels& labels = {}) const;

  // What a scrape gets: HELP and TYPE for each family, and every series.
  std::vector<prometheus::MetricFamily> Collect() const override;
  std::string Text() const;

 private:
  struct Series {
    double value = 0;  // counter and gauge; a histogram's sum
    uint64_t count = 0;
    std::vector<uint64_t> buckets;  // observations at most buckets[i], not cumulative
  };
  using Family = std::map<Labels, Series>;

  bool Exported(const MetricDefinition& metric) const;
  Series* Find(MetricId id, MetricType type, const Labels& labels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const MetricRole role_;
  mutable absl::Mutex mutex_;
  std::vector<Family> families_ ABSL_GUARDED_BY(mutex_);
};

// `text` with every byte sequence that is not UTF-8 replaced by U+FFFD (one for each maximal ill-formed part).
std::string ToValidUtf8(std::string_view text);

// Help text with backslash and line feed escaped, as the text format wants it; the serializer writes help as it stands.
std::string EscapeMetricHelp(std::string_view help);

// Families in the Prometheus text format 0.0.4.
std::string MetricsText(const std::vector<prometheus::MetricFamily>& families);

}  // namespace sluice
