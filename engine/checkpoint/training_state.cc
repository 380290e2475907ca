#include "engine/checkpoint/training_state.h"

#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

using nlohmann::json;

// One list of the fields serves both directions, so that neither can forget one. `Fields` calls visit(name, member) for
// each.
template <typename Visitor>
void Fields(DataCursor& data, Visitor visit) {
  visit("epoch", data.epoch);
  visit("samples_into_epoch", data.samples_into_epoch);
  visit("permutation_seed", data.permutation_seed);
  visit("data_fingerprint", data.data_fingerprint);
}

template <typename Visitor>
void Fields(ScheduleState& schedule, Visitor visit) {
  visit("next_update", schedule.next_update);
  visit("learning_rate", schedule.learning_rate);
  visit("weight_decay", schedule.weight_decay);
}

template <typename Visitor>
void Fields(RandomState& random, Visitor visit) {
  visit("seed", random.seed);
  visit("counter", random.counter);
}

template <typename Visitor>
void Fields(TrainingCounters& counters, Visitor visit) {
  visit("samples", counters.samples);
  visit("tokens", counters.tokens);
  visit("loss_tokens", counters.loss_tokens);
  visit("skipped_updates", counters.skipped_updates);
  visit("skipped_in_a_row", counters.skipped_in_a_row);
  visit("optimizer_updates", counters.optimizer_updates);
}

template <typename Visitor>
void Fields(TrainingState& state, Visitor visit) {
  visit("step", state.step);
  visit("data", state.data);
  visit("schedule", state.schedule);
  visit("random", state.random);
  visit("counters", state.counters);
  visit("extra", state.extra);
}

template <typename T>
concept Leaf =
    std::is_arithmetic_v<T> || std::is_same_v<T, std::string> || std::is_same_v<T, std::map<std::string, std::string>>;

template <typename T>
json ToJson(T& value) {
  if constexpr (Leaf<T>) {
    return value;
  } else {
    json object = json::object();
    Fields(value, [&](const char* name, auto& member) { object[name] = ToJson(member); });
    return object;
  }
}

absl::Status Wrong(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(kTrainingStateName, ": ", path, " ", what));
}

absl::Status Read(const json& from, const std::string& path, int64_t& to) {
  const bool fits = from.is_number_integer() && (!from.is_number_unsigned() || from.get<uint64_t>() <= INT64_MAX);
  if (!fits) return Wrong(path, "is not a whole number");
  to = from.get<int64_t>();
  return absl::OkStatus();
}

absl::Status Read(const json& from, const std::string& path, uint64_t& to) {
  if (!from.is_number_unsigned()) return Wrong(path, "is not a whole number of 0 or more");
  to = from.get<uint64_t>();
  return absl::OkStatus();
}

absl::Status Read(const json& from, const std::string& path, double& to) {
  if (!from.is_number()) return Wrong(path, "is not a number");
  to = from.get<double>();
  return absl::OkStatus();
}

absl::Status Read(const json& from, const std::string& path, std::string& to) {
  if (!from.is_string()) return Wrong(path, "is not a text");
  to = from.get<std::string>();
  return absl::OkStatus();
}

absl::Status Read(const json& from, const std::string& path, std::map<std::string, std::string>& to) {
  if (!from.is_object()) return Wrong(path, "is not an object");
  for (const auto& [key, value] : from.items()) RETURN_IF_ERROR(Read(value, absl::StrCat(path, ".", key), to[key]));
  return absl::OkStatus();
}

template <typename T>
requires(!Leaf<T>) absl::Status Read(const json& from, const std::string& path, T& to) {
  if (!from.is_object()) return Wrong(path, "is not an object");
  absl::Status status;
  size_t known = 0;
  Fields(to, [&](const char* name, auto& member) {
    if (!status.ok()) return;
    const std::string member_path = path.empty() ? name : absl::StrCat(path, ".", name);
    const auto found = from.find(name);
    if (found == from.end()) {
      status = Wrong(member_path, "is missing");
    } else {
      status = Read(*found, member_path, member);
    }
    ++known;
  });
  RETURN_IF_ERROR(status);
  if (from.size() == known) return absl::OkStatus();
  for (const auto& [key, value] : from.items()) {
    bool is_field = false;
    Fields(to, [&](const char* name, auto&) { is_field = is_field || key == name; });
    if (!is_field) return Wrong(path.empty() ? key : absl::StrCat(path, ".", key), "is unknown to this program");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> SerializeTrainingState(const TrainingState& state) {
  TrainingState copy = state;  // Fields takes members that may be written
  ASSIGN_OR_RETURN(const std::string text, DumpJson(ToJson(copy), 1, kTrainingStateName));
  return text + "\n";
}

absl::StatusOr<TrainingState> ParseTrainingState(const std::string& text) {
  const absl::StatusOr<json> parsed = ParseJsonObject(text, kTrainingStateName);
  if (!parsed.ok()) return absl::DataLossError(parsed.status().message());
  TrainingState state;
  RETURN_IF_ERROR(Read(*parsed, "", state));
  return state;
}

}  // namespace sluice::engine
