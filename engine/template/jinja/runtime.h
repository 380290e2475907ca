// What one rendering shares with the functions it calls: its limits and its clock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/template/jinja/limits.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

class Namespace;

// Used by one rendering, on one thread.
class Runtime {
 public:
  Runtime(const Limits& limits, std::optional<absl::Time> now, absl::TimeZone time_zone)
      : limits_(limits), now_(now), time_zone_(time_zone), steps_left_(limits.max_steps) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  std::optional<absl::Time> now() const { return now_; }
  absl::TimeZone time_zone() const { return time_zone_; }

  // Uses up steps; an error when none are left.
  absl::Status Step(int64_t steps = 1);
  // IsEqual within the steps that are left.
  absl::StatusOr<bool> Equal(const Value& a, const Value& b);

  // An error where a string of this many bytes, or a list of this many items, is more than the limits allow.
  absl::Status CheckBytes(size_t bytes) const;
  absl::Status CheckItems(size_t items) const;

  // str(value) within the limit. Printing an undefined value gives "".
  absl::StatusOr<std::string> ToText(const Value& value) const;

  absl::StatusOr<Value> MakeNamespace(Dict attributes);

 private:
  const Limits limits_;
  const std::optional<absl::Time> now_;
  const absl::TimeZone time_zone_;
  int64_t steps_left_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace sluice::engine::jinja
