#include "worker/attempt.h"

#include <algorithm>
#include <future>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"

namespace sluice::worker {
namespace {

// A process whose connection broke is about to be reaped.
constexpr absl::Duration kExitPatience = absl::Seconds(5);

// The answers of a stage as they come in.
struct Answers {
  absl::Mutex mutex;
  int outstanding ABSL_GUARDED_BY(mutex) = 0;
  int first_failed ABSL_GUARDED_BY(mutex) = -1;  // index of the engine
  std::vector<absl::StatusOr<v1::StageResponse>> of_engine ABSL_GUARDED_BY(mutex);

  bool Settled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return outstanding == 0 || first_failed >= 0; }
  bool Complete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return outstanding == 0; }
};

}  // namespace

absl::StatusOr<std::shared_ptr<Attempt>> Attempt::Start(const v1::AttemptKey& key, int64_t epoch,
                                                        const std::vector<EngineLaunch>& launches,
                                                        absl::Duration timeout) {
  auto attempt = std::shared_ptr<Attempt>(new Attempt(key, epoch));
  for (const EngineLaunch& launch : launches) {
    ASSIGN_OR_RETURN(std::unique_ptr<EngineProcess> engine, EngineProcess::Start(launch));
    attempt->engines_.push_back(std::move(engine));
  }
  // All processes load their libraries side by side; waiting for them one after the other costs nothing.
  for (const auto& engine : attempt->engines_) {
    ASSIGN_OR_RETURN(const v1::EngineState state, engine->WaitUntilReady(timeout));
    v1::StartedEngine started;
    started.set_rank(engine->rank());
    started.set_pid(engine->pid());
    attempt->started_.push_back(started);
    if (state.rendezvous_port() != 0) attempt->rendezvous_port_ = state.rendezvous_port();
  }
  return attempt;
}

absl::StatusOr<std::vector<EngineProcess*>> Attempt::EnginesOf(const std::vector<int>& ranks) const {
  std::vector<EngineProcess*> engines;
  for (const auto& engine : engines_) {
    if (ranks.empty() || std::find(ranks.begin(), ranks.end(), engine->rank()) != ranks.end()) {
      engines.push_back(engine.get());
    }
  }
  if (!ranks.empty() && engines.size() != ranks.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("of the ranks ", absl::StrJoin(ranks, ", "), " not all are on this worker"));
  }
  return engines;
}

absl::StatusOr<v1::RunStageResponse> Attempt::RunStage(const v1::StageRequest& request, const std::vector<int>& ranks,
                                                       absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::vector<EngineProcess*> engines, EnginesOf(ranks));
  const auto count = static_cast<int>(engines.size());
  Answers answers;
  {
    absl::MutexLock lock(&answers.mutex);
    answers.outstanding = count;
    answers.of_engine.resize(engines.size());
  }
  // A blocking call on a thread of its own for each engine, joined below, so that no call outlives its channel: gRPC
  // 1.51 joins its callback threads when the last channel goes, and corrupts its queue where a callback lets it go.
  std::vector<std::jthread> calls;
  for (int i = 0; i < count; ++i) {
    calls.emplace_back([&, i] {
      absl::StatusOr<v1::StageResponse> answer = engines[i]->RunStage(request, deadline);
      absl::MutexLock lock(&answers.mutex);
      if (!answer.ok() && answers.first_failed < 0) answers.first_failed = i;
      answers.of_engine[i] = std::move(answer);
      --answers.outstanding;
    });
  }
  const auto await = [&](bool (Answers::*condition)() const, absl::Time until) {
    absl::MutexLock lock(&answers.mutex);
    return answers.mutex.AwaitWithDeadline(absl::Condition(&answers, condition), until);
  };
  absl::Time next_ask = absl::Now() + EngineProcess::kAskInterval;
  while (!await(&Answers::Settled, next_ask)) {
    next_ask += EngineProcess::kAskInterval;
    for (EngineProcess* engine : engines) engine->KillIfSilent();
  }
  bool complete = await(&Answers::Complete, absl::InfinitePast());
  if (!complete) complete = await(&Answers::Complete, absl::Now() + (AnyEnded() ? kPeerGraceAfterEnd : kPeerGrace));
  absl::Status status;
  {
    absl::MutexLock lock(&answers.mutex);
    if (answers.first_failed < 0) {
      v1::RunStageResponse response;
      for (int i = 0; i < count; ++i) {
        v1::RankStageResponse* rank = response.add_ranks();
        rank->set_rank(engines[i]->rank());
        *rank->mutable_response() = *std::move(answers.of_engine[i]);
      }
      return response;
    }
    status = answers.of_engine[answers.first_failed].status();
  }
  // A process that died explains every other error: its peers only noticed that it was gone.
  for (const auto& engine : engines_) {
    const bool suspect = status.code() == absl::StatusCode::kUnavailable ||
                         status.code() == absl::StatusCode::kAborted || status.code() == absl::StatusCode::kCancelled;
    if (const auto failure = engine->UnaskedExit(suspect ? kExitPatience / this->ranks() : absl::ZeroDuration())) {
      status = WithFailure(absl::AbortedError(failure->message()), *failure);
      break;
    }
  }
  if (!complete) Stop(absl::ZeroDuration());
  return status;
}

bool Attempt::AnyEnded() const {
  return std::any_of(engines_.begin(), engines_.end(),
                     [](const auto& engine) { return engine->UnaskedExit(absl::ZeroDuration()).has_value(); });
}

Attempt::StopResult Attempt::Stop(absl::Duration grace) {
  std::vector<std::future<bool>> stops;
  for (const auto& engine : engines_) {
    if (engine->running()) {
      stops.push_back(std::async(std::launch::async, [&engine, grace] { return engine->Stop(grace); }));
    }
  }
  StopResult result;
  for (auto& stop : stops) ++(stop.get() ? result.killed : result.asked);
  return result;
}

v1::AttemptStatus Attempt::Status() {
  v1::AttemptStatus status;
  status.set_job_id(key_.job_id());
  status.set_attempt(key_.attempt());
  status.set_epoch(epoch_);
  for (const auto& engine : engines_) *status.add_engines() = engine->Status();
  return status;
}

bool Attempt::RankRuns(int rank) const {
  for (const auto& engine : engines_) {
    if (engine->rank() == rank) return engine->running();
  }
  return false;
}

}  // namespace sluice::worker
