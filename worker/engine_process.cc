#include "worker/engine_process.h"

#include <grpcpp/client_context.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "worker/engine_exit.h"

namespace sluice::worker {
namespace {

constexpr absl::Duration kStatusTimeout = absl::Milliseconds(500);

// The letter of a process in /proc (proc(5)); '?' where it is gone.
char ProcessState(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = stat.rfind(") ");  // a name may hold anything
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '?' : stat[name_end + 2];
}

}  // namespace

absl::StatusOr<std::unique_ptr<EngineProcess>> EngineProcess::Start(const EngineLaunch& launch) {
  ProcessOptions options;
  options.argv = {launch.engine_binary,
                  "--socket",
                  launch.socket_path,
                  "--rank",
                  absl::StrCat(launch.rank),
                  "--cpu-threads",
                  absl::StrCat(launch.cpu_threads),
                  "--host",
                  launch.host};
  if (launch.serve_rendezvous) options.argv.push_back("--serve-rendezvous");
  if (launch.gpu.has_value()) options.environment.emplace_back("CUDA_VISIBLE_DEVICES", *launch.gpu);
  options.log_path = launch.log_path;
  ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(options));
  return std::unique_ptr<EngineProcess>(new EngineProcess(launch, std::move(process)));
}

EngineProcess::EngineProcess(const EngineLaunch& launch, std::unique_ptr<ChildProcess> process)
    : launch_(launch),
      process_(std::move(process)),
      stub_(v1::EngineService::NewStub(MakeChannel(absl::StrCat("unix:", launch.socket_path)))) {}

absl::StatusOr<v1::EngineState> EngineProcess::WaitUntilReady(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(absl::ToChronoTime(std::min(deadline, absl::Now() + kStatusTimeout)));
    v1::EngineState state;
    const grpc::Status status = stub_->GetStatus(&context, {}, &state);
    if (status.ok()) return state;
    if (const auto failure = UnaskedExit(absl::ZeroDuration())) {
      return WithFailure(absl::AbortedError(failure->message()), *failure);
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("engine of rank ", rank(), " did not answer within ",
                                                      absl::FormatDuration(timeout), "; see ", launch_.log_path));
    }
  }
}

absl::StatusOr<v1::StageResponse> EngineProcess::RunStage(const v1::StageRequest& request, absl::Time deadline) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  v1::StageResponse response;
  RETURN_IF_ERROR(FromGrpcStatus(stub_->RunStage(&context, request, &response)));
  return response;
}

std::optional<v1::Failure> EngineProcess::UnaskedExit(absl::Duration patience) const {
  const std::optional<ProcessExit> exit = process_->WaitForExit(patience);
  if (!exit.has_value() || stop_asked_) return std::nullopt;
  const std::string tail = ReadFileTail(launch_.log_path, kStderrTailBytes);
  if (const char state = killed_in_state_; state != 0) {
    return FailureOfSilence(rank(), launch_.silent_asks * kAskInterval, state, tail);
  }
  return FailureOfExit(rank(), *exit, tail);
}

std::optional<v1::EngineState> EngineProcess::Ask() {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kStatusTimeout));
  v1::EngineState state;
  if (!stub_->GetStatus(&context, {}, &state).ok()) return std::nullopt;
  return state;
}

void EngineProcess::KillIfSilent() {
  if (launch_.silent_asks == 0 || stop_asked_ || !running()) return;
  absl::MutexLock lock(&ask_mutex_);
  // Threads that run stages at once come a moment after each other.
  if (absl::Now() < asked_ + kAskInterval / 2) return;
  asked_ = absl::Now();
  silent_asks_ = Ask().has_value() ? 0 : silent_asks_ + 1;
  if (silent_asks_ < launch_.silent_asks) return;
  killed_in_state_ = ProcessState(pid());
  process_->Signal(SIGKILL);
}

bool EngineProcess::Stop(absl::Duration grace) {
  const absl::Time deadline = absl::Now() + grace;
  if (!stop_asked_.exchange(true) && running()) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kStatusTimeout));
    v1::ShutdownResponse response;
    // An engine that does not answer is dealt with below.
    static_cast<void>(stub_->Shutdown(&context, {}, &response));
  }
  if (process_->WaitForExit(grace / 2).has_value()) return false;
  return process_->Terminate(std::max(absl::ZeroDuration(), deadline - absl::Now()));
}

v1::EngineStatus EngineProcess::Status() {
  v1::EngineStatus status;
  status.set_rank(rank());
  status.set_pid(pid());
  status.set_running(running());
  if (const auto failure = UnaskedExit(absl::ZeroDuration())) *status.mutable_failure() = *failure;
  if (status.running()) {
    if (const std::optional<v1::EngineState> state = Ask()) {
      status.set_collective_sequence(state->collective_sequence());
      status.set_collective_name(state->collective_name());
    }
  }
  return status;
}

}  // namespace sluice::worker
