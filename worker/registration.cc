#include "worker/registration.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/logging.h"

namespace sluice::worker {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr absl::Duration kStopGrace = absl::Seconds(5);

}  // namespace

Registration::Registration(std::unique_ptr<v1::WorkerRegistryService::StubInterface> controller,
                           RegistrationOptions options, Supervisor* supervisor, Metrics* metrics, const Clock* clock)
    : controller_(std::move(controller)),
      options_(std::move(options)),
      supervisor_(supervisor),
      metrics_(metrics),
      clock_(clock),
      last_answer_(clock->Now()),
      thread_([this] { Run(); }) {}

Registration::~Registration() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Registration::Run() {
  while (Wait(Exchange())) {
  }
}

bool Registration::Wait(absl::Duration duration) {
  const absl::Time deadline = clock_->Now() + duration;
  absl::MutexLock lock(&mutex_);
  while (!stopping_ && clock_->Now() < deadline) clock_->WaitUntil(&mutex_, &changed_, deadline);
  return !stopping_;
}

absl::Duration Registration::Exchange() {
  const bool answered = registered_ ? Beat() : Register();
  if (answered) {
    last_answer_ = clock_->Now();
    lease_lost_ = false;
    last_error_.clear();
    return heartbeat_interval_;
  }
  if (!lease_lost_ && clock_->Now() - last_answer_ > lease_) {
    lease_lost_ = true;
    LoggerFor("worker").Warning(
        absl::StrCat("no heartbeat was answered for ", absl::FormatDuration(lease_),
                     ": stopping all attempts, their controller may have started them elsewhere"));
    for (const v1::AttemptStatus& attempt : supervisor_->Statuses()) {
      v1::AttemptKey key;
      key.set_job_id(attempt.job_id());
      key.set_attempt(attempt.attempt());
      supervisor_->StopWithoutFence(key, kStopGrace);
    }
  }
  return options_.retry_interval;
}

bool Registration::Register() {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  v1::RegisterWorkerResponse response;
  const grpc::Status status = controller_->RegisterWorker(&context, options_.worker, &response);
  if (!status.ok()) {
    // Said once, not at every retry.
    if (last_error_ != status.error_message()) {
      LoggerFor("worker").Warning(
          absl::StrCat("cannot register with the controller: ", status.error_message(), "; trying on"));
      last_error_ = status.error_message();
    }
    return false;
  }
  registered_ = true;
  heartbeat_interval_ = absl::Seconds(response.heartbeat_interval_s());
  lease_ = absl::Seconds(response.lease_s());
  LoggerFor("worker").Info(absl::StrCat("registered as ", options_.worker.worker_id(), " with ",
                                        options_.worker.resources().rank_slots(), " rank slots (",
                                        options_.worker.resources().device(), ")"));
  return true;
}

bool Registration::Beat() {
  v1::HeartbeatRequest request;
  request.set_worker_id(options_.worker.worker_id());
  request.set_incarnation(options_.worker.incarnation());
  for (v1::AttemptStatus& attempt : supervisor_->Statuses()) *request.add_attempts() = std::move(attempt);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  v1::HeartbeatResponse response;
  const absl::Time sent = absl::Now();
  const grpc::Status status = controller_->Heartbeat(&context, request, &response);
  if (!status.ok()) {
    // NOT_FOUND: the controller was restarted or gave us up.
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) registered_ = false;
    return false;
  }
  metrics_->Observe(MetricId::kHeartbeatRoundTrip, {}, absl::ToDoubleSeconds(absl::Now() - sent));
  for (const v1::AttemptKey& key : response.stop()) {
    LoggerFor("worker").Info(
        absl::StrCat("stopping ", key.job_id(), " attempt ", key.attempt(), ": the controller asks for it"));
    supervisor_->StopWithoutFence(key, kStopGrace);
  }
  return true;
}

}  // namespace sluice::worker
