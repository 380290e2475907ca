#include "engine/reward/remote_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_channel.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/reward/reward_factory.h"
#include "grpcpp/server.h"
#include "sluice/v1/reward.grpc.pb.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Scores a response with the number it is; "none", "nan", "raise" and "bad metric" are what they say. Fails the first
// `failures` calls of each batch.
class FakeRewardService : public v1::RewardService::Service {
 public:
  grpc::Status Score(grpc::ServerContext*, const v1::ScoreRequest* request, v1::ScoreResponse* response) override {
    absl::MutexLock lock(&mutex_);
    batch_sizes.push_back(request->items_size());
    if (attempts_[request->items(0).solution()]++ < failures) return {code, "not now"};
    for (const v1::ScoreItem& item : request->items()) {
      v1::ScoreResult& result = *response->add_results();
      if (item.solution() == "none") continue;
      if (item.solution() == "raise") {
        result.mutable_error()->set_kind(v1::ScoreError::KIND_RAISED);
        result.mutable_error()->set_message("ValueError");
        continue;
      }
      result.set_score(item.solution() == "nan" ? std::nan("") : std::stod("0" + item.solution()));
      (*result.mutable_metrics())["tokens"] = static_cast<double>(item.response_tokens());
      if (item.solution() == "1" && item.truncated()) (*result.mutable_metrics())["bad"] = std::nan("");
    }
    if (drops_a_result) response->mutable_results()->RemoveLast();
    return grpc::Status::OK;
  }

  int failures = 0;
  grpc::StatusCode code = grpc::StatusCode::UNAVAILABLE;
  bool drops_a_result = false;
  std::vector<int> batch_sizes;

 private:
  absl::Mutex mutex_;
  std::map<std::string, int> attempts_;
};

class RemoteRewardTest : public ::testing::Test {
 protected:
  RemoteRewardTest() {
    options_.address = "unix:" + dir_.Join("s");
    options_.concurrency = 1;
    grpc::ServerBuilder builder;
    ApplyServerLimits(&builder);
    builder.AddListeningPort(options_.address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~RemoteRewardTest() override { server_->Shutdown(); }

  absl::StatusOr<std::unique_ptr<Reward>> Make() {
    return MakeRemoteReward(options_, {[] { return 0.5; },
                                       [this](absl::Duration pause) {
                                         absl::MutexLock lock(&mutex_);
                                         pauses_.push_back(pause);
                                       }});
  }

  static std::vector<RewardRequest> Numbers(int count) {
    std::vector<RewardRequest> requests;
    for (int i = 0; i < count; ++i) requests.push_back({.solution = absl::StrCat(i), .response_tokens = 2 * i});
    return requests;
  }

  testing::TempDir dir_;
  FakeRewardService service_;
  std::unique_ptr<grpc::Server> server_;
  RemoteRewardOptions options_;
  absl::Mutex mutex_;
  std::vector<absl::Duration> pauses_;
};

TEST_F(RemoteRewardTest, SplitsIntoBatchesAndKeepsTheOrder) {
  options_.batch_size = 4;
  options_.concurrency = 3;
  ASSERT_OK_AND_ASSIGN(const auto reward, Make());
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(Numbers(10)));
  ASSERT_EQ(results.size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(results[i].score, i);
    EXPECT_EQ(results[i].metrics.at("tokens"), 2 * i);
  }
  std::sort(service_.batch_sizes.begin(), service_.batch_sizes.end());
  EXPECT_THAT(service_.batch_sizes, ElementsAre(2, 4, 4));
  EXPECT_TRUE(pauses_.empty());
  ASSERT_OK_AND_ASSIGN(const auto none, reward->Score({}));
  EXPECT_TRUE(none.empty());
}

TEST_F(RemoteRewardTest, TriesAgainWithGrowingPauses) {
  service_.failures = 3;
  options_.max_attempts = 4;
  options_.max_backoff = absl::Milliseconds(600);
  ASSERT_OK_AND_ASSIGN(const auto reward, Make());
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(Numbers(3)));
  EXPECT_EQ(results[2].score, 2);
  EXPECT_THAT(pauses_, ElementsAre(absl::Milliseconds(100), absl::Milliseconds(200), absl::Milliseconds(300)));
}

TEST_F(RemoteRewardTest, AttemptsUsedUpAreErrorsOfTheirKind) {
  service_.failures = 100;
  options_.max_attempts = 2;
  for (const auto& [code, error] : {std::pair(grpc::StatusCode::RESOURCE_EXHAUSTED, RewardError::kUnavailable),
                                    std::pair(grpc::StatusCode::DEADLINE_EXCEEDED, RewardError::kTimeout)}) {
    service_.code = code;
    ASSERT_OK_AND_ASSIGN(const auto reward, Make());
    ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(Numbers(2)));
    EXPECT_FALSE(results[1].score.has_value());
    EXPECT_EQ(results[1].error, error);
    EXPECT_THAT(results[1].message, AllOf(HasSubstr(options_.address), HasSubstr("2 times"), HasSubstr("not now")));
  }
}

TEST_F(RemoteRewardTest, ARefusalFailsTheCallAtOnce) {
  service_.failures = 100;
  service_.code = grpc::StatusCode::PERMISSION_DENIED;
  options_.batch_size = 1;
  ASSERT_OK_AND_ASSIGN(const auto reward, Make());
  EXPECT_THAT(reward->Score(Numbers(5)), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("not now")));
  EXPECT_EQ(service_.batch_sizes.size(), 1u);
}

TEST_F(RemoteRewardTest, AnswersThatAreNoScore) {
  ASSERT_OK_AND_ASSIGN(const auto reward, Make());
  const RewardRequest requests[] = {{.solution = "none"},
                                    {.solution = "raise"},
                                    {.solution = "nan"},
                                    {.solution = "1", .truncated = true},
                                    {.solution = "7"}};
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(requests));
  EXPECT_EQ(results[0].error, RewardError::kBadValue);
  EXPECT_EQ(results[1].error, RewardError::kRaised);
  EXPECT_EQ(results[1].message, "ValueError");
  EXPECT_EQ(results[2].error, RewardError::kBadValue);
  EXPECT_EQ(results[3].error, RewardError::kBadValue);
  EXPECT_THAT(results[3].message, HasSubstr("metric bad"));
  EXPECT_EQ(results[4].score, 7);
}

TEST_F(RemoteRewardTest, AWrongNumberOfResultsFailsTheCall) {
  service_.drops_a_result = true;
  ASSERT_OK_AND_ASSIGN(const auto reward, Make());
  EXPECT_THAT(reward->Score(Numbers(2)), StatusIs(absl::StatusCode::kInternal, HasSubstr("1 results for 2 items")));
}

TEST_F(RemoteRewardTest, NobodyThereIsUnavailable) {
  options_.address = "unix:" + dir_.Join("nobody");
  options_.max_attempts = 2;
  ASSERT_OK_AND_ASSIGN(const auto reward, Make());
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(Numbers(1)));
  EXPECT_EQ(results[0].error, RewardError::kUnavailable);
  EXPECT_EQ(pauses_.size(), 1u);
}

TEST(RemoteRewardOptionsTest, AreChecked) {
  EXPECT_THAT(MakeRemoteReward({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("address")));
  EXPECT_THAT(MakeRemoteReward({.address = "a:1", .batch_size = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("batch_size: is 0")));
  EXPECT_OK(MakeSingleReward({.kind = "remote", .options = {{"address", "localhost:1"}}}));
}

TEST(BackoffTest, DoublesUpToItsBound) {
  const RemoteRewardOptions options = {.initial_backoff = absl::Seconds(1), .max_backoff = absl::Seconds(5)};
  EXPECT_EQ(BackoffBefore(1, options, 0.5), absl::Milliseconds(500));
  EXPECT_EQ(BackoffBefore(3, options, 0.5), absl::Seconds(2));
  EXPECT_EQ(BackoffBefore(4, options, 0.5), absl::Milliseconds(2500));
  EXPECT_EQ(BackoffBefore(1000000, options, 0), absl::ZeroDuration());
}

}  // namespace
}  // namespace sluice::engine
