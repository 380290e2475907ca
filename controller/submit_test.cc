// Submissions that are repeated, raced, lost and mended: tests/golden/control/J01.json, case by case, over gRPC. A lost
// reply is a deadline that has passed; a kill is a controller that is not shut down but dropped (the store's own kill
// test covers kill -9).
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "controller/controller.h"
#include "controller/store/sqlite_store.h"
#include "controller/testing/fake_worker_server.h"
#include "nlohmann/json.hpp"
#include "sluice/v1/controller.grpc.pb.h"

namespace sluice::controller {
namespace {

using ::sluice::controller::testing::FakeWorkerServer;
using ::sluice::testing::TempDir;
using Code = absl::StatusCode;

class SubmitTest : public ::testing::TestWithParam<nlohmann::json> {
 protected:
  SubmitTest() { Start(); }

  void Start() {
    controller_.reset();
    ControllerOptions options;
    options.listen_address = "127.0.0.1:0";
    options.state_dir = folder_.Join("state");
    // The fake worker sends one heartbeat; a slow machine must not lose it.
    options.registry.suspect_after = options.registry.lost_after = absl::Hours(1);
    options.validate = [](const v1::JobSpec& spec) {
      return spec.recipe() == "sft" ? absl::OkStatus() : absl::InvalidArgumentError("recipe: did you mean sft?");
    };
    auto started = Controller::Start(options, &clock_);
    ASSERT_OK(started);
    controller_ = *std::move(started);
    stub_ = v1::ControllerService::NewStub(MakeChannel(controller_->address()));
  }

  static v1::SubmitJobRequest RequestOf(const nlohmann::json& step) {
    v1::SubmitJobRequest request;
    const nlohmann::json& id = step["request_id"];
    if (id.is_string()) {
      request.set_request_id(id.get<std::string>());
    } else {
      for (int i = 0; i < id["times"].get<int>(); ++i) *request.mutable_request_id() += id["repeat"].get<std::string>();
    }
    const nlohmann::json& body = step["body"];
    v1::JobSpec* spec = request.mutable_spec();
    spec->set_recipe(body["recipe"].get<std::string>());
    spec->mutable_model()->set_path(body["model"].get<std::string>());
    spec->mutable_trainer()->set_seed(body["seed"].get<int64_t>());
    spec->mutable_trainer()->set_save_freq("-1");
    spec->mutable_trainer()->set_test_freq("-1");
    spec->mutable_trainer()->set_nnodes(1);
    spec->mutable_trainer()->set_n_gpus_per_node(1);
    spec->set_name(body.value("name", "job"));
    return request;
  }

  absl::StatusOr<v1::Job> Submit(const v1::SubmitJobRequest& request) {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    const grpc::Status status = stub_->SubmitJob(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.job();
  }

  int64_t Jobs() {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    EXPECT_TRUE(stub_->ListJobs(&context, v1::ListJobsRequest(), &response).ok());
    return response.total_size();
  }

  // Blocks until the job ends, with a worker to run it.
  void AwaitEnd(const std::string& job_id) {
    FakeWorkerServer server;
    ASSERT_TRUE(server.Register(controller_->address(), 1).ok());
    grpc::ClientContext context;
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    const auto reader = stub_->WatchJob(&context, request);
    for (v1::WatchJobResponse response; reader->Read(&response);) {
    }
    ASSERT_TRUE(reader->Finish().ok());
  }

  void Cancel(const std::string& job_id) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_job_id(job_id);
    v1::Job job;
    ASSERT_TRUE(stub_->CancelJob(&context, request, &job).ok());
  }

  RealClock clock_;
  TempDir folder_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<v1::ControllerService::Stub> stub_;
};

TEST_P(SubmitTest, IsIdempotent) {
  const nlohmann::json& test_case = GetParam();
  const std::string name = test_case["case"].get<std::string>();
  std::vector<absl::StatusOr<v1::Job>> replies;
  std::vector<std::thread> parallel;
  absl::Mutex mutex;
  for (const nlohmann::json& step : test_case["steps"]) {
    if (step.contains("restart")) {
      Start();
      continue;
    }
    if (step.contains("wait")) {
      AwaitEnd(replies.at(0)->job_id());
      continue;
    }
    if (step["call"] == "CancelJob") {
      Cancel(replies.at(0)->job_id());
      continue;
    }
    const v1::SubmitJobRequest request = RequestOf(step);
    const std::string fault = step.value("fault", "");
    if (fault.find("request lost") != std::string::npos || fault.find("before the write") != std::string::npos)
      continue;
    if (!fault.empty()) {  // the write happens, its reply does not reach the client
      EXPECT_OK(Submit(request));
      continue;
    }
    for (int copy = step.value("copies", 1); copy > 0; --copy) {
      if (step.value("parallel", false)) {
        parallel.emplace_back([&, request] {
          auto reply = Submit(request);
          absl::MutexLock lock(&mutex);
          replies.push_back(std::move(reply));
        });
      } else {
        replies.push_back(Submit(request));
      }
    }
  }
  for (std::thread& thread : parallel) thread.join();

  if (name == "two_users_same_id")
    return;  // no accounts yet; the store keeps ids of users apart (store_conformance_test)
  std::set<std::string> ok_jobs;
  std::map<Code, int> codes;
  for (const auto& reply : replies) {
    ++codes[reply.status().code()];
    if (reply.ok()) ok_jobs.insert(reply->job_id());
  }
  if (name == "no_id") {
    EXPECT_EQ(codes[Code::kOk], 2);
    EXPECT_EQ(ok_jobs.size(), 2u);
    return;
  }
  EXPECT_EQ(Jobs(), test_case["outcome"]["jobs"].get<int64_t>());
  EXPECT_EQ(static_cast<int64_t>(ok_jobs.size()), test_case["outcome"]["jobs"].get<int64_t>());
  const std::map<std::string, std::map<Code, int>> refusals = {
      {"other_body", {{Code::kAlreadyExists, 1}}},
      {"other_body_while_the_first_is_in_flight", {{Code::kAlreadyExists, 1}}},
      {"rejected_then_mended", {{Code::kInvalidArgument, 1}}},
      {"bad_id", {{Code::kInvalidArgument, 2}}}};
  const auto refused = refusals.find(name);
  int expected_ok = static_cast<int>(replies.size());
  if (refused != refusals.end()) {
    for (const auto& [code, count] : refused->second) {
      EXPECT_EQ(codes[code], count);
      expected_ok -= count;
    }
  }
  EXPECT_EQ(codes[Code::kOk], expected_ok);
  if (name == "after_the_end") {
    EXPECT_EQ(replies.back()->state(), v1::JOB_STATE_SUCCEEDED);
  }
  if (name == "after_the_end") {
    EXPECT_EQ(replies.back()->attempt(), 1);
  }
  if (name == "after_cancel") {
    EXPECT_EQ(replies.back()->state(), v1::JOB_STATE_CANCELLED);
  }
  if (name == "other_body") {
    EXPECT_THAT(std::string(replies.back().status().message()), ::testing::HasSubstr(*ok_jobs.begin()));
  }
}

std::vector<nlohmann::json> Cases() {
  std::ifstream file("tests/golden/control/J01.json");
  if (!file) return {};
  return nlohmann::json::parse(file).get<std::vector<nlohmann::json>>();
}

INSTANTIATE_TEST_SUITE_P(Cases, SubmitTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param["case"].template get<std::string>(); });

}  // namespace
}  // namespace sluice::controller
