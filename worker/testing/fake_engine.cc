// A stand-in for sluice-engine in tests of the daemons: it speaks EngineService, trains nothing and misbehaves on
// request.
//
// What it does wrong is in the job's name, as `KIND_STEP` or `KIND_STEP_RANK` (rank 0 without one), at the train_batch
// of that step:
//   crash   SIGSEGV          exit   exit code 7 after a last line on standard error
//   hang    never answers    error  answers INVALID_ARGUMENT         kill  SIGKILL
//   stop    SIGSTOP: the whole process stands still
// A job whose name begins with `stubborn` is not to be stopped but by SIGKILL. Two environment variables make the
// program fail before it listens: SLUICE_FAKE_ENGINE_NEVER_READY (waits for ever) and SLUICE_FAKE_ENGINE_EXITS (exit
// code 3).
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "sluice/v1/engine.grpc.pb.h"

namespace {

using namespace sluice::v1;  // NOLINT: a test program

constexpr int kTotalSteps = 6;

class FakeEngine final : public EngineService::Service {
 public:
  FakeEngine(int rank, bool serve_rendezvous) : rank_(rank), serve_rendezvous_(serve_rendezvous) {}

  grpc::Status RunStage(grpc::ServerContext*, const StageRequest* request, StageResponse* response) override {
    sequence_ = request->sequence();
    if (request->has_initialize()) return Initialize(request->initialize(), response->mutable_initialize());
    if (request->has_train_batch()) return Train(request->train_batch().step(), response->mutable_train_batch());
    if (request->has_infer_batch()) {
      response->mutable_infer_batch()->set_step(request->infer_batch().step());
      response->mutable_infer_batch()->set_loss(2.5);
    } else if (request->has_save_checkpoint()) {
      response->mutable_save_checkpoint()->set_step(request->save_checkpoint().step());
    } else if (request->has_export_weights()) {
      response->mutable_export_weights()->set_path(request->export_weights().path());
    } else {
      return {grpc::StatusCode::INVALID_ARGUMENT, "the fake engine does not know this operation"};
    }
    return grpc::Status::OK;
  }

  grpc::Status GetStatus(grpc::ServerContext*, const GetStatusRequest*, EngineState* state) override {
    state->set_rank(rank_);
    state->set_stage_sequence(sequence_);
    state->set_collective_sequence(17);
    state->set_collective_name("all_reduce");
    if (serve_rendezvous_) state->set_rendezvous_port(4242);
    return grpc::Status::OK;
  }

  grpc::Status Shutdown(grpc::ServerContext*, const ShutdownRequest*, ShutdownResponse*) override {
    if (!stubborn_ && !shutdown_.HasBeenNotified()) shutdown_.Notify();
    return grpc::Status::OK;
  }

  void WaitForShutdown() { shutdown_.WaitForNotification(); }

 private:
  grpc::Status Initialize(const InitializeOp& op, InitializeResult* result) {
    std::printf("initialized %s on rank %d of %d, meeting at '%s', gpu '%s'\n", op.job_id().c_str(), rank_,
                op.world_size(), op.rendezvous_address().c_str(),
                getenv("CUDA_VISIBLE_DEVICES") == nullptr ? "" : getenv("CUDA_VISIBLE_DEVICES"));
    std::fflush(stdout);
    stubborn_ = absl::StartsWith(op.spec().name(), "stubborn");
    if (stubborn_) signal(SIGTERM, SIG_IGN);
    const std::vector<std::string> words = absl::StrSplit(op.spec().name(), '_');
    int rank = 0;
    if (words.size() > 2) static_cast<void>(absl::SimpleAtoi(words[2], &rank));
    // The fault strikes once: later attempts of the job go through.
    if (words.size() > 1 && rank == rank_ && op.attempt() <= 1 && absl::SimpleAtoi(words[1], &fault_step_))
      fault_ = words[0];
    result->set_total_steps(op.spec().trainer().has_total_training_steps() ? op.spec().trainer().total_training_steps()
                                                                           : kTotalSteps);
    result->set_steps_per_epoch(result->total_steps());
    result->set_train_rows(10);
    result->set_val_rows(op.spec().data().val_files_size());
    result->set_device("cpu");
    return grpc::Status::OK;
  }

  grpc::Status Train(int64_t step, StepMetrics* metrics) {
    if (step == fault_step_ && !fault_.empty()) {
      if (fault_ == "crash") {
        signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would turn the signal into an exit code
        raise(SIGSEGV);
      }
      if (fault_ == "kill") raise(SIGKILL);
      if (fault_ == "stop") raise(SIGSTOP);
      if (fault_ == "hang") absl::Notification().WaitForNotification();
      if (fault_ == "error") return {grpc::StatusCode::INVALID_ARGUMENT, "data.train_files: bad row"};
      if (fault_ == "exit") {
        std::fprintf(stderr, "the last thing it said\n");
        _exit(7);
      }
    }
    metrics->set_step(step);
    metrics->set_loss(1.0 / static_cast<double>(step));
    metrics->set_tokens(90);
    metrics->set_scored_tokens(40);
    metrics->set_token_slots(100);
    return grpc::Status::OK;
  }

  const int rank_;
  const bool serve_rendezvous_;
  std::atomic<int64_t> sequence_ = 0;
  std::atomic<bool> stubborn_ = false;
  std::string fault_;
  int64_t fault_step_ = 0;
  absl::Notification shutdown_;
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 1; i + 1 < argc; ++i) options[argv[i]] = argv[i + 1];
  if (getenv("SLUICE_FAKE_ENGINE_NEVER_READY") != nullptr) absl::Notification().WaitForNotification();
  if (getenv("SLUICE_FAKE_ENGINE_EXITS") != nullptr) {
    std::fprintf(stderr, "no such device\n");
    return 3;
  }
  FakeEngine engine(atoi(options["--rank"].c_str()), std::strcmp(argv[argc - 1], "--serve-rendezvous") == 0);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + options["--socket"], grpc::InsecureServerCredentials());
  builder.RegisterService(&engine);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 4;
  engine.WaitForShutdown();
  _exit(0);
}
