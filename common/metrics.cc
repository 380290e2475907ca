#include "common/metrics.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <sstream>
#include <utility>

#include "common/build_info.h"
#include "common/logging.h"
#include "common/process_stats.h"
#include "prometheus/text_serializer.h"

namespace sluice {
namespace {

constexpr size_t kLongestLabelValue = 1024;

std::string CleanLabelValue(const std::string& value) {
  std::string clean = ToValidUtf8(value);
  if (clean.size() <= kLongestLabelValue) return clean;
  size_t end = kLongestLabelValue - 3;
  while (end > 0 && (static_cast<unsigned char>(clean[end]) & 0xC0) == 0x80) --end;
  return clean.substr(0, end) + "...";
}

prometheus::MetricType ToPrometheus(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return prometheus::MetricType::Counter;
    case MetricType::kGauge:
      return prometheus::MetricType::Gauge;
    case MetricType::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

// Length of the well-formed sequence at text[0], or 0; then *skip is the length of the ill-formed part.
size_t Utf8SequenceLength(std::string_view text, size_t* skip) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  *skip = 1;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  size_t length = 0;
  unsigned char low = 0x80,
                high = 0xBF;  // bounds of the second byte: no overlong forms, surrogates or values past U+10FFFF
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) {
      *skip = i;
      return 0;
    }
  }
  return length;
}

}  // namespace

std::string ToValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    size_t skip = 0;
    const size_t length = Utf8SequenceLength(text, &skip);
    if (length == 0) {
      valid += "\xEF\xBF\xBD";
      text.remove_prefix(skip);
    } else {
      valid.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return valid;
}

std::string EscapeMetricHelp(std::string_view help) {
  std::string escaped;
  for (const char character : help) {
    if (character == '\\') {
      escaped += "\\\\";
    } else if (character == '\n') {
      escaped += "\\n";
    } else {
      escaped += character;
    }
  }
  return escaped;
}

std::string MetricsText(const std::vector<prometheus::MetricFamily>& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

Metrics::Metrics(MetricRole role) : role_(role), families_(MetricCatalogue().size()) {
  for (const MetricDefinition& metric : MetricCatalogue()) {
    if (metric.labels.empty() && metric.type != MetricType::kGauge) {
      absl::MutexLock lock(&mutex_);
      Find(metric.id, metric.type, {});
    }
  }
  Set(MetricId::kBuildInfo, {BuildVersion(), BuildCommit()}, 1);
}

bool Metrics::Exported(const MetricDefinition& metric) const {
  return role_ == MetricRole::kBoth || metric.role == MetricRole::kBoth || metric.role == role_;
}

Metrics::Series* Metrics::Find(MetricId id, MetricType type, const Labels& labels) {
  const MetricDefinition& metric = DefinitionOf(id);
  assert(metric.type == type && metric.labels.size() == labels.size());
  if (metric.type != type || metric.labels.size() != labels.size() || !Exported(metric)) return nullptr;
  Labels clean;
  clean.reserve(labels.size());
  for (const std::string& value : labels) clean.push_back(CleanLabelValue(value));
  Series& series = families_[static_cast<size_t>(id)][std::move(clean)];
  if (type == MetricType::kHistogram && series.buckets.empty()) series.buckets.resize(metric.buckets.size() + 1);
  return &series;
}

void Metrics::Increment(MetricId id, const Labels& labels, double by) {
  absl::MutexLock lock(&mutex_);
  if (Series* series = Find(id, MetricType::kCounter, labels)) series->value += by;
}

void Metrics::Set(MetricId id, const Labels& labels, double value) {
  absl::MutexLock lock(&mutex_);
  if (Series* series = Find(id, MetricType::kGauge, labels)) series->value = value;
}

void Metrics::Observe(MetricId id, const Labels& labels, double value) {
  absl::MutexLock lock(&mutex_);
  Series* series = Find(id, MetricType::kHistogram, labels);
  if (series == nullptr) return;
  const std::vector<double>& bounds = DefinitionOf(id).buckets;
  const size_t bucket = static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
  ++series->buckets[bucket];
  ++series->count;
  series->value += value;
}

void Metrics::Remove(MetricId id, const Labels& labels) {
  Labels clean;
  for (const std::string& value : labels) clean.push_back(CleanLabelValue(value));
  absl::MutexLock lock(&mutex_);
  families_[static_cast<size_t>(id)].erase(clean);
}

double Metrics::ValueForTest(MetricId id, const Labels& labels) const {
  absl::MutexLock lock(&mutex_);
  const Family& family = families_[static_cast<size_t>(id)];
  const auto found = family.find(labels);
  if (found == family.end()) return 0;
  return DefinitionOf(id).type == MetricType::kHistogram ? static_cast<double>(found->second.count)
                                                         : found->second.value;
}

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  const ProcessStats process = ReadProcessStats();
  std::vector<prometheus::MetricFamily> families;
  absl::MutexLock lock(&mutex_);
  for (const MetricDefinition& metric : MetricCatalogue()) {
    if (!Exported(metric)) continue;
    prometheus::MetricFamily family;
    family.name = metric.name;
    family.help = EscapeMetricHelp(metric.help);
    family.type = ToPrometheus(metric.type);
    for (const auto& [labels, series] : families_[static_cast<size_t>(metric.id)]) {
      prometheus::ClientMetric sample;
      for (size_t i = 0; i < labels.size(); ++i) sample.label.push_back({metric.labels[i], labels[i]});
      sample.counter.value = series.value;
      sample.gauge.value = series.value;
      if (metric.type == MetricType::kHistogram) {
        sample.histogram.sample_count = series.count;
        sample.histogram.sample_sum = series.value;
        uint64_t cumulative = 0;
        for (size_t i = 0; i < series.buckets.size(); ++i) {
          cumulative += series.buckets[i];
          const double bound = i < metric.buckets.size() ? metric.buckets[i] : std::numeric_limits<double>::infinity();
          sample.histogram.bucket.push_back({cumulative, bound});
        }
      }
      family.metric.push_back(std::move(sample));
    }
    const auto add_gauge = [&](double value) {
      prometheus::ClientMetric sample;
      sample.gauge.value = value;
      family.metric.push_back(std::move(sample));
    };
    if (metric.id == MetricId::kProcessResidentMemory) add_gauge(static_cast<double>(process.resident_bytes));
    if (metric.id == MetricId::kProcessOpenFds) add_gauge(static_cast<double>(process.open_fds));
    if (metric.id == MetricId::kProcessStartTime) add_gauge(process.start_time_s);
    if (metric.id == MetricId::kLogMessages) {
      for (const LogLevel level : kLogLevels) {
        prometheus::ClientMetric sample;
        sample.label.push_back({metric.labels[0], LogLevelName(level)});
        sample.counter.value = static_cast<double>(LogMessages(level));
        family.metric.push_back(std::move(sample));
      }
    }
    families.push_back(std::move(family));
  }
  return families;
}

std::string Metrics::Text() const { return MetricsText(Collect()); }

}  // namespace sluice
