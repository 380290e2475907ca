#include "engine/reward/python_reward.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/process.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "common/temporary_folder.h"
#include "engine/reward/reward_process.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

using Clock = std::chrono::steady_clock;  // the wall clock may be set while a call runs
using nlohmann::json;

// Bytes that are no UTF-8 come from tokens cut in the middle of a character; they become U+FFFD.
std::string Line(const json& message) { return message.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string RequestLine(size_t id, const RewardRequest& request) {
  return Line({{"id", id},
               {"data_source", request.data_source},
               {"solution_str", request.solution},
               {"ground_truth", request.ground_truth},
               {"extra_info", request.extra_info_json}});
}

// nullopt: the line is none that the runner writes.
std::optional<RewardResult> ParseAnswer(const std::string& line, size_t id) {
  const json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object() || answer.value("id", json()) != json(id)) return std::nullopt;
  if (answer.contains("error")) {
    if (!answer.contains("message") || !answer["message"].is_string()) return std::nullopt;
    const RewardError error = answer["error"] == "raised" ? RewardError::kRaised : RewardError::kBadValue;
    return RewardResult::Failed(error, answer["message"].get<std::string>());
  }
  if (!answer.contains("score") || !answer["score"].is_number()) return std::nullopt;
  RewardResult result = RewardResult::Scored(answer["score"].get<double>());
  const json metrics = answer.value("metrics", json::object());
  if (!metrics.is_object()) return std::nullopt;
  for (const auto& [name, value] : metrics.items()) {
    if (!value.is_number()) return std::nullopt;
    result.metrics[name] = value.get<double>();
  }
  return result;
}

class PythonReward : public Reward {
 public:
  PythonReward(const PythonRewardOptions& options, std::string python, TemporaryFolder logs)
      : options_(options), python_(std::move(python)), logs_(std::move(logs)), slots_(options.workers) {}

  // Returns once every process has imported the file.
  absl::Status StartAll() {
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < slots_.size(); ++i) StartProcess(i);
    const auto is_starting = [](const Slot& slot) { return slot.process != nullptr && !slot.is_ready; };
    while (std::any_of(slots_.begin(), slots_.end(), is_starting)) Poll({}, nullptr);
    for (const Slot& slot : slots_) RETURN_IF_ERROR(slot.start_status);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<RewardResult>> Score(absl::Span<const RewardRequest> requests) override {
    absl::MutexLock lock(&mutex_);
    for (Slot& slot : slots_) slot.start_status = absl::OkStatus();  // what failed before may work now
    std::vector<RewardResult> results(requests.size());
    size_t next = 0;
    while (true) {
      for (size_t i = 0; i < slots_.size() && next < requests.size(); ++i) {
        if (Assign(i, next, requests)) ++next;
      }
      const auto is_busy = [](const Slot& slot) { return slot.item.has_value(); };
      const auto has_process = [](const Slot& slot) { return slot.process != nullptr; };
      if (next == requests.size() && std::none_of(slots_.begin(), slots_.end(), is_busy)) return results;
      if (std::none_of(slots_.begin(), slots_.end(), has_process)) break;
      Poll(requests, &results);
    }
    // No process can be started any more.
    for (; next < requests.size(); ++next) {
      results[next] = RewardResult::Failed(RewardError::kUnavailable, std::string(slots_[0].start_status.message()));
    }
    return results;
  }

 private:
  struct Slot {
    std::unique_ptr<RewardProcess> process;  // null: none runs
    bool is_ready = false;                   // it has imported the file
    std::optional<size_t> item;              // what it works on
    Clock::time_point deadline;              // of starting, or of the item
    absl::Status start_status;               // why none could be started
  };

  void StartProcess(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Slot& slot = slots_[index];
    slot.is_ready = false;
    slot.process = nullptr;
    absl::StatusOr<std::unique_ptr<RewardProcess>> process =
        RewardProcess::Start({.python = python_,
                              .log_path = absl::StrCat(logs_.path(), "/", index, ".log"),
                              .memory_bytes = options_.memory_bytes,
                              .file_bytes = options_.file_bytes});
    slot.start_status = process.status();
    if (!process.ok()) return;
    slot.process = *std::move(process);
    slot.deadline = Clock::now() + absl::ToChronoNanoseconds(options_.start_timeout);
    slot.process->Send(Line({{"path", options_.file},
                             {"function", options_.function},
                             {"kwargs", json::parse(options_.kwargs_json)},
                             {"timeout_s", absl::ToDoubleSeconds(options_.timeout)},
                             {"start_timeout_s", absl::ToDoubleSeconds(options_.start_timeout)}}));
  }

  // Gives the item to the slot if that is free; starts a process where there is none.
  bool Assign(size_t index, size_t item, absl::Span<const RewardRequest> requests)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Slot& slot = slots_[index];
    if (slot.item.has_value()) return false;
    // One that ended while it had nothing to do must not cost a request.
    if (slot.process != nullptr && slot.is_ready && slot.process->IsLost()) slot.process = nullptr;
    if (slot.process == nullptr && slot.start_status.ok()) StartProcess(index);
    if (slot.process == nullptr || !slot.is_ready) return false;
    slot.item = item;
    slot.deadline = Clock::now() + absl::ToChronoNanoseconds(options_.timeout);
    slot.process->Send(RequestLine(item, requests[item]));
    return true;
  }

  // Waits until something happens to a process that works or starts, and takes it in.
  void Poll(absl::Span<const RewardRequest> requests, std::vector<RewardResult>* results)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<pollfd> fds;
    std::vector<Slot*> active;
    auto nearest = Clock::time_point::max();
    for (Slot& slot : slots_) {
      if (slot.process == nullptr || (slot.is_ready && !slot.item.has_value())) continue;
      active.push_back(&slot);
      const bool has_unsent = slot.process->has_unsent();
      fds.push_back({slot.process->socket(), static_cast<short>(POLLIN | (has_unsent ? POLLOUT : 0)), 0});
      fds.push_back({slot.process->exit_fd(), POLLIN, 0});
      nearest = std::min(nearest, slot.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(nearest - Clock::now()).count();
    poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    for (Slot* slot : active) TakeIn(slot, results);
  }

  void TakeIn(Slot* slot, std::vector<RewardResult>* results) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    RewardProcess& process = *slot->process;
    const bool is_lost = process.IsLost();  // before Pump: what it wrote before its end counts
    process.Pump();
    if (const std::optional<std::string> line = process.TakeLine()) {
      slot->is_ready ? TakeAnswer(slot, *line, results) : TakeStart(slot, *line);
    } else if (is_lost) {
      const RewardError error = process.UsedTooMuchCpu() ? RewardError::kTimeout : RewardError::kCrashed;
      Drop(slot, error, process.WhyLost(), results);
    } else if (Clock::now() >= slot->deadline) {
      const absl::Duration limit = slot->is_ready ? options_.timeout : options_.start_timeout;
      Drop(slot, RewardError::kTimeout, absl::StrCat("no answer within ", absl::FormatDuration(limit)), results);
    }
  }

  void TakeStart(Slot* slot, const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (answer.is_object() && answer.value("ready", json()) == json(true)) {
      slot->is_ready = true;
      return;
    }
    const json error = answer.is_object() ? answer.value("error", json()) : json();
    slot->start_status = absl::InvalidArgumentError(
        absl::StrCat(options_.file, ": cannot be imported:\n", error.is_string() ? error.get<std::string>() : line));
    slot->process = nullptr;
  }

  void TakeAnswer(Slot* slot, const std::string& line, std::vector<RewardResult>* results)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::optional<RewardResult> result = ParseAnswer(line, *slot->item);
    if (!result.has_value()) {
      return Drop(slot, RewardError::kCrashed, "the process sent what is no answer", results);
    }
    (*results)[*slot->item] = *std::move(result);
    slot->item = std::nullopt;
  }

  // Ends the process; its item, or its start, has failed.
  void Drop(Slot* slot, RewardError error, const std::string& why, std::vector<RewardResult>* results)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (slot->item.has_value()) {
      (*results)[*slot->item] = RewardResult::Failed(error, why);
      slot->item = std::nullopt;
    } else {
      const std::string message = absl::StrCat(options_.file, ": while it was imported: ", why);
      slot->start_status =
          error == RewardError::kTimeout ? absl::DeadlineExceededError(message) : absl::InvalidArgumentError(message);
    }
    slot->process = nullptr;
  }

  const PythonRewardOptions options_;
  const std::string python_;
  const TemporaryFolder logs_;
  absl::Mutex mutex_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
};

absl::Status CheckOptions(const PythonRewardOptions& options) {
  if (options.workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat("workers: is ", options.workers, ", at least 1 expected"));
  }
  if (options.timeout <= absl::ZeroDuration() || options.start_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("timeout and start_timeout: more than 0 expected");
  }
  if (!json::parse(options.kwargs_json, nullptr, /*allow_exceptions=*/false).is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("kwargs: ", options.kwargs_json, " is no JSON object"));
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.file, error)) {
    return absl::NotFoundError(absl::StrCat("path: there is no file ", options.file));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reward>> StartPythonReward(const PythonRewardOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  absl::StatusOr<std::string> python = FindProgram(options.python.empty() ? "python3" : options.python);
  if (!python.ok()) return Annotate(python.status(), "python");
  ASSIGN_OR_RETURN(TemporaryFolder logs, TemporaryFolder::Create("sluice-reward-"));
  auto reward = std::make_unique<PythonReward>(options, *std::move(python), std::move(logs));
  RETURN_IF_ERROR(reward->StartAll());
  return reward;
}

}  // namespace sluice::engine
