// Readers that do not read: they are cut, told where to go on, and hold up nobody. The hub's only thread would be
// theirs if a stream could hold one.
#include "controller/api/watch_hub.h"

#include <thread>

#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "controller/store/sqlite_store.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "sluice/v1/controller.grpc.pb.h"

namespace sluice::controller {
namespace {

using ::sluice::testing::StatusIs;
using ::sluice::testing::TempDir;
using ::testing::HasSubstr;

constexpr int kEvents = 12;
// Several times what a connection takes without a read, so that a write waits for its reader.
constexpr size_t kEventBytes = 1 << 20;

class WatchOnly final : public v1::ControllerService::CallbackService {
 public:
  explicit WatchOnly(WatchHub* hub) : hub_(hub) {}
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(grpc::CallbackServerContext* context,
                                                           const v1::WatchJobRequest* request) override {
    return hub_->Open(context, *request);
  }

 private:
  WatchHub* const hub_;
};

// A stream of its own connection, so that one reader's flow control is not the other's.
struct Reader {
  Reader(const std::string& address, const std::string& job_id, int64_t after) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // the window stays small
    stub = v1::ControllerService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    v1::WatchJobRequest request;
    request.set_job_id(job_id);
    request.set_after_resource_version(after);
    stream = stub->WatchJob(&context, request);
  }

  // Reads to the end of the stream.
  absl::Status Drain(std::vector<int64_t>* versions) {
    for (v1::WatchJobResponse response; stream->Read(&response);) {
      versions->push_back(response.event().resource_version());
    }
    return FromGrpcStatus(stream->Finish());
  }

  grpc::ClientContext context;
  std::unique_ptr<v1::ControllerService::Stub> stub;
  std::unique_ptr<grpc::ClientReader<v1::WatchJobResponse>> stream;
};

class WatchHubTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = SqliteStore::Open(folder_.Join("store.db"));
    ASSERT_OK(opened);
    store_ = *std::move(opened);
    hub_ = std::make_unique<WatchHub>(store_.get(), &pool_, &clock_, &metrics_);
    service_ = std::make_unique<WatchOnly>(hub_.get());
    grpc::ServerBuilder builder;
    ApplyServerLimits(&builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);

    ASSERT_OK_AND_ASSIGN(const AddedJob added, store_->AddJob({"", ""}, v1::JobSpec(), clock_.Now()));
    job_id_ = added.job.job_id();
    for (int i = 0; i < kEvents; ++i) {
      Happening happening;
      happening.time = clock_.Now();
      happening.message = std::string(kEventBytes, 'x');
      ASSERT_OK(store_->Append(job_id_, {happening}, nullptr, nullptr));
    }
  }

  void TearDown() override {
    hub_->CloseAll();
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  // Lets time pass until the predicate holds: a stream whose write begins late is due later.
  template <typename Predicate>
  void PassTimeUntil(Predicate predicate) {
    while (!predicate()) {
      clock_.Advance(WatchHub::kLongestWrite);
      hub_->CutSlowReaders();
      std::this_thread::yield();
    }
  }

  TempDir folder_;
  FakeClock clock_;
  Metrics metrics_{MetricRole::kController};
  std::unique_ptr<SqliteStore> store_;
  ThreadPool pool_{1};
  std::unique_ptr<WatchHub> hub_;
  std::unique_ptr<WatchOnly> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::string job_id_;
};

TEST_F(WatchHubTest, ASlowReaderHoldsUpNobodyAndIsCutWithAWayToGoOn) {
  Reader slow(address_, job_id_, 0);
  v1::WatchJobResponse first;
  ASSERT_TRUE(slow.stream->Read(&first));

  // Another reader of the same job gets everything meanwhile, and what happens is told to both.
  Reader quick(address_, job_id_, 0);
  for (int i = 0; i < 1 + kEvents; ++i) {
    v1::WatchJobResponse response;
    ASSERT_TRUE(quick.stream->Read(&response)) << i;
  }
  Change cancel;
  cancel.time = clock_.Now();
  cancel.message = "cancelled";
  ASSERT_OK(store_->Transition(job_id_, v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, cancel));
  hub_->Notify(job_id_);
  std::vector<int64_t> rest_of_quick;
  EXPECT_OK(quick.Drain(&rest_of_quick));
  EXPECT_EQ(rest_of_quick, (std::vector<int64_t>{kEvents + 2}));

  clock_.Advance(WatchHub::kLongestWrite - absl::Milliseconds(1));
  hub_->CutSlowReaders();
  EXPECT_EQ(metrics_.ValueForTest(MetricId::kWatchCut), 0) << "nobody is cut before time";
  PassTimeUntil([&] { return metrics_.ValueForTest(MetricId::kWatchCut) == 1; });
  // It wakes up: it gets what was on the way and is told what to do.
  std::vector<int64_t> versions = {first.event().resource_version()};
  EXPECT_THAT(slow.Drain(&versions),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("after_resource_version")));
  EXPECT_LT(versions.size(), static_cast<size_t>(kEvents));

  // Going on from there it misses nothing and gets nothing twice.
  Reader resumed(address_, job_id_, versions.back());
  EXPECT_OK(resumed.Drain(&versions));
  ASSERT_EQ(versions.size(), static_cast<size_t>(kEvents) + 2);
  for (size_t i = 0; i < versions.size(); ++i) EXPECT_EQ(versions[i], static_cast<int64_t>(i) + 1);
}

TEST_F(WatchHubTest, AReaderThatNeverReadsAgainIsBrokenOff) {
  Reader dead(address_, job_id_, 0);
  v1::WatchJobResponse first;
  ASSERT_TRUE(dead.stream->Read(&first));
  ASSERT_EQ(metrics_.ValueForTest(MetricId::kWatchStreams), 1);
  PassTimeUntil([&] { return metrics_.ValueForTest(MetricId::kWatchStreams) == 0; });
  EXPECT_EQ(metrics_.ValueForTest(MetricId::kWatchCut), 1) << "counted once";
}

}  // namespace
}  // namespace sluice::controller
