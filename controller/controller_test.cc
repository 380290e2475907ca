// The controller as its users meet it: over gRPC and HTTP, with a worker behind gRPC too. On the real clock; nothing
// here depends on how long anything takes.
#include "controller/controller.h"

#include <filesystem>
#include <thread>

#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "controller/testing/fake_worker_server.h"
#include "sluice/v1/controller.grpc.pb.h"

namespace sluice::controller {
namespace {

using ::sluice::controller::testing::FakeWorkerServer;
using ::sluice::testing::StatusIs;
using ::sluice::testing::TempDir;
using ::testing::HasSubstr;

v1::JobSpec Spec() {
  v1::JobSpec spec;
  spec.set_name("run");
  spec.mutable_trainer()->set_nnodes(1);
  spec.mutable_trainer()->set_n_gpus_per_node(1);
  spec.mutable_trainer()->set_save_freq("5");
  spec.mutable_trainer()->set_test_freq("-1");
  spec.mutable_checkpoint()->add_save_contents("model");
  return spec;
}

class ControllerTest : public ::testing::Test {
 protected:
  ControllerTest() { Start(); }

  void Start() {
    controller_.reset();
    ControllerOptions options;
    options.listen_address = "127.0.0.1:0";
    options.metrics_address = "127.0.0.1:0";
    options.state_dir = folder_.Join("state");
    options.reflection = true;
    // The fake worker sends one heartbeat; a slow machine must not lose it.
    options.registry.suspect_after = options.registry.lost_after = absl::Hours(1);
    options.validate = [](const v1::JobSpec& spec) {
      return spec.name() == "bad" ? absl::InvalidArgumentError("name: bad\noptim.lr: " + std::string(20'000, 'x'))
                                  : absl::OkStatus();
    };
    auto started = Controller::Start(options, &clock_);
    ASSERT_OK(started);
    controller_ = *std::move(started);
    stub_ = v1::ControllerService::NewStub(MakeChannel(controller_->address()));
  }

  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(grpc::Status (v1::ControllerService::Stub::*method)(grpc::ClientContext*,
                                                                                    const Request&, Response*),
                                const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  absl::StatusOr<v1::Job> Submit(const v1::JobSpec& spec, const std::string& request_id = "",
                                 bool validate_only = false) {
    v1::SubmitJobRequest request;
    request.set_request_id(request_id);
    request.set_validate_only(validate_only);
    *request.mutable_spec() = spec;
    auto response = Call(&v1::ControllerService::Stub::SubmitJob, request);
    if (!response.ok()) return response.status();
    return response->job();
  }

  absl::StatusOr<v1::Job> Get(const std::string& job_id) {
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    return Call(&v1::ControllerService::Stub::GetJob, request);
  }

  // Reads the job's events until the stream ends.
  absl::Status Watch(const std::string& job_id, int64_t after, std::vector<v1::WatchJobResponse>* events) {
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    request.set_after_resource_version(after);
    const auto reader = stub_->WatchJob(&context, request);
    for (v1::WatchJobResponse response; reader->Read(&response);) events->push_back(response);
    return FromGrpcStatus(reader->Finish());
  }

  RealClock clock_;
  TempDir folder_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<v1::ControllerService::Stub> stub_;
};

TEST_F(ControllerTest, AJobIsWatchedFromSubmissionToItsEnd) {
  FakeWorkerServer server;
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Submit(Spec()));
  std::vector<v1::WatchJobResponse> events;
  absl::Status watched;
  std::thread watcher([&] { watched = Watch(job.job_id(), 0, &events); });
  ASSERT_TRUE(server.Register(controller_->address(), 1).ok());
  watcher.join();
  EXPECT_OK(watched);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front().event().state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(events.back().event().state(), v1::JOB_STATE_SUCCEEDED);
  int64_t step = 0, version = 0;
  for (const v1::WatchJobResponse& response : events) {
    EXPECT_GT(response.event().resource_version(), version);
    version = response.event().resource_version();
    if (response.event().has_step()) {
      EXPECT_EQ(response.event().step().step(), ++step);
    }
  }
  EXPECT_EQ(step, server.worker.total_steps);

  // Resumed in the middle, nothing is missed and nothing comes twice.
  std::vector<v1::WatchJobResponse> rest;
  EXPECT_OK(Watch(job.job_id(), events[3].event().resource_version(), &rest));
  ASSERT_EQ(rest.size(), events.size() - 4);
  EXPECT_EQ(rest.front().event().SerializeAsString(), events[4].event().SerializeAsString());
}

TEST_F(ControllerTest, ALongHistoryIsReplayedWhole) {
  FakeWorkerServer server;
  server.worker.total_steps = server.worker.steps_per_epoch = 500;
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Submit(Spec()));
  ASSERT_TRUE(server.Register(controller_->address(), 1).ok());
  std::vector<v1::WatchJobResponse> live, replayed;
  EXPECT_OK(Watch(job.job_id(), 0, &live));
  EXPECT_OK(Watch(job.job_id(), 0, &replayed));
  EXPECT_EQ(live.size(), replayed.size());
  EXPECT_GT(live.size(), 600u);
}

TEST_F(ControllerTest, CallsThatNameNothingAreNotFound) {
  EXPECT_THAT(Get("job-9"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("job-9")));
  std::vector<v1::WatchJobResponse> events;
  EXPECT_THAT(Watch("job-9", 0, &events), StatusIs(absl::StatusCode::kNotFound, HasSubstr("job-9")));
}

TEST_F(ControllerTest, ABadSpecIsRefusedWholeAndNothingIsStored) {
  v1::JobSpec spec = Spec();
  spec.set_name("bad");
  // Longer than gRPC's usual limit of metadata: every error arrives.
  EXPECT_THAT(Submit(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(20'000, 'x'))));
  spec = Spec();
  spec.mutable_trainer()->set_save_freq("sometimes");
  EXPECT_THAT(Submit(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.save_freq")));
  ASSERT_OK_AND_ASSIGN(const v1::Job judged, Submit(Spec(), "", /*validate_only=*/true));
  EXPECT_EQ(judged.job_id(), "");
  EXPECT_EQ(Call(&v1::ControllerService::Stub::ListJobs, v1::ListJobsRequest())->total_size(), 0);
}

TEST_F(ControllerTest, JobsSurviveARestart) {
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Submit(Spec(), "r1"));
  const auto info = Call(&v1::ControllerService::Stub::GetServerInfo, v1::GetServerInfoRequest());
  Start();
  EXPECT_EQ(Get(job.job_id())->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Submit(Spec(), "r1")->job_id(), job.job_id());
  EXPECT_EQ(Call(&v1::ControllerService::Stub::GetServerInfo, v1::GetServerInfoRequest())->store_id(),
            info->store_id());
}

TEST_F(ControllerTest, LogsAreReadFromTheWorkerAndFollowed) {
  FakeWorkerServer server;
  server.worker.HangStage("train_batch", 2);
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Submit(Spec()));
  v1::GetJobLogsRequest request;
  request.set_job_id(job.job_id());
  const auto read = [&](std::string* text) {
    grpc::ClientContext context;
    const auto reader = stub_->GetJobLogs(&context, request);
    for (v1::GetJobLogsResponse piece; reader->Read(&piece);) {
      EXPECT_EQ(piece.offset(), request.offset() + static_cast<int64_t>(text->size()));
      *text += piece.data();
    }
    return FromGrpcStatus(reader->Finish());
  };
  std::string text;
  EXPECT_THAT(read(&text), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no attempt")));
  ASSERT_TRUE(server.Register(controller_->address(), 1).ok());
  server.worker.AwaitStage("train_batch", 2);
  const std::string first(100'000, 'a');
  server.worker.AppendLog(first);
  EXPECT_OK(read(&text));
  EXPECT_EQ(text, first);
  text.clear();
  request.set_offset(99'990);
  request.set_follow(true);
  absl::Status followed;
  std::thread follower([&] { followed = read(&text); });
  server.worker.AppendLog("more\n");
  server.worker.Release();
  follower.join();
  EXPECT_OK(followed);
  EXPECT_EQ(text, "aaaaaaaaaamore\n");
  request.set_rank(5);
  EXPECT_THAT(read(&text), StatusIs(absl::StatusCode::kNotFound, HasSubstr("rank 5")));
}

TEST_F(ControllerTest, WorkersAreListedWithTheirLoad) {
  FakeWorkerServer server;
  server.worker.HangStage("train_batch", 1);
  ASSERT_TRUE(server.Register(controller_->address(), 3).ok());
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Submit(Spec()));
  server.worker.AwaitStage("train_batch", 1);
  ASSERT_OK_AND_ASSIGN(const auto workers, Call(&v1::ControllerService::Stub::ListWorkers, v1::ListWorkersRequest()));
  ASSERT_EQ(workers.workers_size(), 1);
  EXPECT_EQ(workers.workers(0).state(), v1::WORKER_STATE_READY);
  EXPECT_EQ(workers.workers(0).ranks_used(), 1);
  EXPECT_EQ(workers.workers(0).job_ids(0), job.job_id());
  v1::CancelJobRequest cancel;
  cancel.set_job_id(job.job_id());
  EXPECT_OK(Call(&v1::ControllerService::Stub::CancelJob, cancel));
  std::vector<v1::WatchJobResponse> events;
  EXPECT_OK(Watch(job.job_id(), 0, &events));
  EXPECT_EQ(events.back().event().state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(ControllerTest, AnEnginesEvidenceArrivesWithTheJob) {
  FakeWorkerServer server;
  v1::Failure failure;
  failure.set_reason(v1::FAILURE_REASON_OUT_OF_MEMORY);
  failure.set_message("rank 0 ran out of memory");
  failure.set_stderr_tail(std::string(64 << 10, 'e'));
  server.worker.FailStage("train_batch", 1, WithFailure(absl::ResourceExhaustedError("oom"), failure));
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Submit(Spec()));
  ASSERT_TRUE(server.Register(controller_->address(), 1).ok());
  std::vector<v1::WatchJobResponse> events;
  EXPECT_OK(Watch(job.job_id(), 0, &events));
  EXPECT_EQ(Get(job.job_id())->failure().SerializeAsString(), failure.SerializeAsString());
}

TEST_F(ControllerTest, ShutdownEndsOpenStreamsAndSaysSo) {
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Submit(Spec()));
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_job_id(job.job_id());
  const auto reader = stub_->WatchJob(&context, request);
  v1::WatchJobResponse response;
  ASSERT_TRUE(reader->Read(&response));
  controller_->Shutdown(absl::Seconds(5));
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ControllerTest, AddressesAndStoresInUseAreErrors) {
  ControllerOptions options;
  options.listen_address = controller_->address();
  options.state_dir = folder_.Join("other");
  EXPECT_THAT(Controller::Start(options, &clock_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot listen on " + controller_->address())));
  EXPECT_FALSE(std::filesystem::exists(options.state_dir)) << "nothing is written";
  options.listen_address = "127.0.0.1:0";
  options.state_dir = folder_.Join("state");
  EXPECT_THAT(Controller::Start(options, &clock_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another controller")));
  options.state_dir = "";
  EXPECT_THAT(Controller::Start(options, &clock_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("state folder")));
}

TEST_F(ControllerTest, ListensOffLoopbackOnlyWhenAskedTo) {
  ControllerOptions options;
  options.listen_address = "0.0.0.0:0";
  options.state_dir = folder_.Join("other");
  EXPECT_THAT(Controller::Start(options, &clock_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--insecure-listen")));
  EXPECT_FALSE(std::filesystem::exists(options.state_dir)) << "nothing is written";
}

TEST(ControllerSocketTest, ServesOnAUnixSocket) {
  RealClock clock;
  TempDir folder;
  ControllerOptions options;
  options.listen_address = "unix:" + folder.Join("c.sock");
  options.state_dir = folder.Join("state");
  ASSERT_OK_AND_ASSIGN(const auto controller, Controller::Start(options, &clock));
  EXPECT_EQ(controller->address(), options.listen_address);
  const auto stub = v1::ControllerService::NewStub(MakeChannel(controller->address()));
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_TRUE(stub->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_EQ(info.version(), BuildVersion());
}

}  // namespace
}  // namespace sluice::controller
