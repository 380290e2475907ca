// What every Store promises (store.h), run against each back end. To add a back end, add its factory to Backends().
#include <google/protobuf/util/message_differencer.h>

#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "common/proto_time.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "controller/job_states.h"
#include "controller/store/sqlite_store.h"
#include "controller/store/store.h"

namespace sluice::controller {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::sluice::testing::StatusIs;
using ::sluice::testing::TempDir;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

// Opens the store kept in a folder, again and again.
using OpenStore = std::function<absl::StatusOr<std::unique_ptr<Store>>(const TempDir&)>;

struct Backend {
  std::string name;
  OpenStore open;
};

std::vector<Backend> Backends() {
  return {{"sqlite", [](const TempDir& folder) -> absl::StatusOr<std::unique_ptr<Store>> {
             return SqliteStore::Open(folder.Join("store.db"));
           }}};
}

v1::JobSpec Spec(const std::string& name, int64_t seed = 1) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_recipe("sft");
  spec.mutable_trainer()->set_seed(seed);
  (*spec.mutable_model()->mutable_override_config()->mutable_fields())["a"].set_number_value(1);
  (*spec.mutable_model()->mutable_override_config()->mutable_fields())["b"].set_number_value(2);
  return spec;
}

Change Say(const std::string& message) {
  Change change;
  change.time = kNow + absl::Seconds(1);
  change.message = message;
  return change;
}

// One rank on one worker.
std::vector<Placement> OnePlace() {
  std::vector<Placement> placements(1);
  placements[0].worker_id = "w";
  return placements;
}

Happening Note(const std::string& message) {
  Happening happening;
  happening.time = kNow;
  happening.message = message;
  return happening;
}

class StoreTest : public ::testing::TestWithParam<Backend> {
 protected:
  StoreTest() { Reopen(); }

  void Reopen() {
    store_.reset();
    auto opened = GetParam().open(folder_);
    ASSERT_OK(opened);
    store_ = *std::move(opened);
  }

  std::string Add(const std::string& name = "run") { return store_->AddJob({"", ""}, Spec(name), kNow)->job.job_id(); }

  TempDir folder_;
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(Backends, StoreTest, ::testing::ValuesIn(Backends()),
                         [](const auto& info) { return info.param.name; });

TEST_P(StoreTest, AddedJobIsQueuedAndComplete) {
  ASSERT_OK_AND_ASSIGN(const AddedJob added, store_->AddJob({"", "r1"}, Spec("run"), kNow));
  EXPECT_TRUE(added.created);
  EXPECT_EQ(added.job.job_id(), "job-1");
  for (const bool reopen : {false, true}) {
    if (reopen) Reopen();
    ASSERT_OK_AND_ASSIGN(const v1::Job job, store_->GetJob("job-1"));
    EXPECT_TRUE(MessageDifferencer::Equals(job, added.job));
    EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
    EXPECT_EQ(job.spec().name(), "run");
    EXPECT_EQ(FromTimestamp(job.create_time()), kNow);
    EXPECT_EQ(job.progress().checkpoint_step(), -1);
    EXPECT_GT(job.resource_version(), 0);
  }
}

TEST_P(StoreTest, ARequestIdIsOneJobForEver) {
  const RequestId request = {"", "r1"};
  ASSERT_OK_AND_ASSIGN(const AddedJob first, store_->AddJob(request, Spec("run"), kNow));
  for (const bool reopen : {false, true}) {
    if (reopen) Reopen();
    ASSERT_OK_AND_ASSIGN(const AddedJob again, store_->AddJob(request, Spec("run"), kNow + absl::Hours(1)));
    EXPECT_FALSE(again.created);
    EXPECT_EQ(again.job.job_id(), first.job.job_id());
    EXPECT_THAT(store_->AddJob(request, Spec("run", /*seed=*/2), kNow),
                StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(first.job.job_id())));
  }
  // Ids are per user, other ids are other jobs, no id is always a new job.
  EXPECT_NE(store_->AddJob({"u2", "r1"}, Spec("run"), kNow)->job.job_id(), first.job.job_id());
  EXPECT_NE(store_->AddJob({"", "r2"}, Spec("run"), kNow)->job.job_id(), first.job.job_id());
  EXPECT_NE(Add(), Add());
  EXPECT_EQ(store_->ListJobs({}, 100, "")->total_size, 5);
  EXPECT_EQ(store_->JobOfRequest(request)->job_id(), first.job.job_id());
  EXPECT_THAT(store_->JobOfRequest({"", "r3"}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("r3")));
}

TEST_P(StoreTest, ARequestIdAnswersWithTheJobAsItIsNow) {
  ASSERT_OK(store_->AddJob({"", "r1"}, Spec("run"), kNow));
  ASSERT_OK(store_->Transition("job-1", v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, Say("cancelled")));
  EXPECT_EQ(store_->AddJob({"", "r1"}, Spec("run"), kNow)->job.state(), v1::JOB_STATE_CANCELLED);
}

TEST_P(StoreTest, ManyAtOnceWithOneRequestIdMakeOneJob) {
  std::vector<std::thread> threads;
  std::vector<std::string> ids(32);
  for (size_t i = 0; i < ids.size(); ++i) {
    threads.emplace_back([this, i, &ids] { ids[i] = store_->AddJob({"", "r1"}, Spec("run"), kNow)->job.job_id(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 1u);
  EXPECT_EQ(store_->ListJobs({}, 100, "")->total_size, 1);
}

TEST_P(StoreTest, TransitionsFollowTheTableAndTheStateThatIs) {
  const std::string id = Add();
  EXPECT_THAT(store_->Transition(id, v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING, Say("")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("QUEUED to RUNNING")));
  EXPECT_THAT(store_->Transition(id, v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED, Say("")),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("job-1 is QUEUED, not RUNNING")));
  EXPECT_THAT(store_->Transition("job-9", v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, Say("")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("job-9")));
  EXPECT_EQ(store_->GetJob(id)->resource_version(), 1) << "a refused call changes nothing";

  ASSERT_OK(store_->BeginAttempt(id, OnePlace(), Say("admitted")));
  ASSERT_OK_AND_ASSIGN(v1::Job job,
                       store_->Transition(id, v1::JOB_STATE_ADMITTED, v1::JOB_STATE_STARTING, Say("starting")));
  EXPECT_EQ(FromTimestamp(job.start_time()), kNow + absl::Seconds(1));
  EXPECT_EQ(job.status_message(), "starting");
  Change failed = Say("out of memory");
  failed.failure.emplace().set_reason(v1::FAILURE_REASON_OUT_OF_MEMORY);
  ASSERT_OK_AND_ASSIGN(job, store_->Transition(id, v1::JOB_STATE_STARTING, v1::JOB_STATE_FAILED, failed));
  EXPECT_EQ(job.failure().reason(), v1::FAILURE_REASON_OUT_OF_MEMORY);
  EXPECT_TRUE(job.has_end_time());
  Reopen();
  EXPECT_TRUE(MessageDifferencer::Equals(*store_->GetJob(id), job));
}

TEST_P(StoreTest, OneOfManyRacingTransitionsWins) {
  const std::string id = Add();
  std::vector<std::thread> threads;
  std::vector<absl::Status> results(16);
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([this, i, &id, &results] {
      results[i] = i % 2 == 0
                       ? store_->BeginAttempt(id, OnePlace(), Say("admitted")).status()
                       : store_->Transition(id, v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, Say("no")).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count_if(results.begin(), results.end(), [](const absl::Status& status) { return status.ok(); }), 1);
  EXPECT_EQ(store_->EventsSince(id, 0, 100)->size(), 2u);
}

TEST_P(StoreTest, AttemptsCountUpWithRisingEpochs) {
  const std::string id = Add();
  int64_t last_epoch = 0;
  for (int32_t attempt = 1; attempt <= 3; ++attempt) {
    if (attempt == 3) Reopen();
    ASSERT_OK_AND_ASSIGN(const AttemptRecord record,
                         store_->BeginAttempt(id, {{0, "w1", "i1", "a1"}, {1, "w2", "i2", "a2"}}, Say("admitted")));
    EXPECT_EQ(record.attempt, attempt);
    EXPECT_GT(record.epoch, last_epoch);
    last_epoch = *store_->NextEpoch();
    EXPECT_GT(last_epoch, record.epoch);
    ASSERT_OK_AND_ASSIGN(const AttemptRecord stored, store_->GetAttempt(id, attempt));
    EXPECT_EQ(stored.epoch, record.epoch);
    ASSERT_EQ(stored.placements.size(), 2u);
    EXPECT_EQ(stored.placements[1].worker_id, "w2");
    EXPECT_EQ(stored.placements[1].address, "a2");
    Change lost = Say("lost");
    lost.counts_as_restart = attempt != 2;
    ASSERT_OK(store_->Transition(id, v1::JOB_STATE_ADMITTED, v1::JOB_STATE_RECOVERING, lost));
    ASSERT_OK(store_->Transition(id, v1::JOB_STATE_RECOVERING, v1::JOB_STATE_QUEUED, Say("again")));
  }
  EXPECT_EQ(*store_->RestartsUsed(id), 2);
  EXPECT_THAT(store_->GetAttempt(id, 4), StatusIs(absl::StatusCode::kNotFound, HasSubstr("attempt 4")));
}

TEST_P(StoreTest, EventsAreReadInOrderFromAnyVersion) {
  const std::string id = Add(), other = Add();
  v1::Progress progress;
  progress.set_step(2);
  std::vector<Happening> steps(2);
  for (int64_t i = 0; i < 2; ++i) {
    steps[i].time = kNow;
    steps[i].step.emplace().set_step(i + 1);
  }
  ASSERT_OK(store_->BeginAttempt(id, OnePlace(), Say("admitted")));
  ASSERT_OK(store_->Append(other, {Note("waits")}, nullptr, nullptr));
  const std::string message = "step 2 of 9";
  ASSERT_OK_AND_ASSIGN(const v1::Job job, store_->Append(id, steps, &progress, &message));
  EXPECT_EQ(job.progress().step(), 2);
  EXPECT_EQ(job.status_message(), message);
  ASSERT_OK_AND_ASSIGN(const auto events, store_->EventsSince(id, 0, 100));
  ASSERT_EQ(events.size(), 4u);
  int64_t last = 0;
  for (const v1::JobEvent& event : events) {
    EXPECT_GT(event.resource_version(), last);
    last = event.resource_version();
  }
  EXPECT_EQ(events[0].state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(events[3].state(), v1::JOB_STATE_ADMITTED);
  EXPECT_EQ(events[3].step().step(), 2);
  EXPECT_EQ(job.resource_version(), last);
  EXPECT_EQ(store_->EventsSince(id, events[1].resource_version(), 1)->at(0).step().step(), 1);
  EXPECT_TRUE(store_->EventsSince(id, last, 10)->empty());
  EXPECT_THAT(store_->EventsSince("job-9", 0, 1), StatusIs(absl::StatusCode::kNotFound, HasSubstr("job-9")));
}

TEST_P(StoreTest, AFinalJobTakesNoMoreEvents) {
  const std::string id = Add();
  ASSERT_OK(store_->Transition(id, v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, Say("cancelled")));
  EXPECT_THAT(store_->Append(id, {Note("late")}, nullptr, nullptr),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("CANCELLED")));
  EXPECT_EQ(store_->EventsSince(id, 0, 100)->size(), 2u);
}

TEST_P(StoreTest, ListsByPagesNewestFirst) {
  for (int i = 0; i < 7; ++i) Add("run-" + std::to_string(i));
  std::vector<std::string> names;
  std::string token;
  do {
    ASSERT_OK_AND_ASSIGN(const JobPage page, store_->ListJobs({}, 3, token));
    EXPECT_EQ(page.total_size, 7 + (token.empty() ? 0 : 1));
    for (const v1::Job& job : page.jobs) names.push_back(job.spec().name());
    if (token.empty()) Add("later");  // not in the pages to come
    token = page.next_page_token;
  } while (!token.empty());
  EXPECT_EQ(names, (std::vector<std::string>{"run-6", "run-5", "run-4", "run-3", "run-2", "run-1", "run-0"}));
}

TEST_P(StoreTest, ListsByStateAndName) {
  Add("alpha");
  const std::string beta = Add("beta");
  Add("beta_%");
  ASSERT_OK(store_->Transition(beta, v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED, Say("")));
  EXPECT_EQ(store_->ListJobs({{v1::JOB_STATE_QUEUED}, ""}, 10, "")->total_size, 2);
  EXPECT_EQ(store_->ListJobs({{}, "beta"}, 10, "")->total_size, 2);
  EXPECT_EQ(store_->ListJobs({{}, "_%"}, 10, "")->total_size, 1) << "no wildcards";
  EXPECT_EQ(store_->ListJobs({{v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED}, "a"}, 10, "")->jobs.size(), 3u);
  ASSERT_OK_AND_ASSIGN(const auto counts, store_->CountByState());
  EXPECT_EQ(counts[v1::JOB_STATE_QUEUED], 2);
  EXPECT_EQ(counts[v1::JOB_STATE_CANCELLED], 1);
  ASSERT_OK_AND_ASSIGN(const auto unfinished, store_->UnfinishedJobs());
  ASSERT_EQ(unfinished.size(), 2u);
  EXPECT_EQ(unfinished[0].job_id(), "job-1");
}

TEST_P(StoreTest, ForeignPageTokensAreRefused) {
  for (int i = 0; i < 3; ++i) Add();
  const std::string token = store_->ListJobs({}, 1, "")->next_page_token;
  EXPECT_OK(store_->ListJobs({}, 1, token));
  for (const std::string& bad : {std::string("x"), std::string("2"), token + "0", "1" + token}) {
    EXPECT_THAT(store_->ListJobs({}, 1, bad), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("page_token")))
        << bad;
  }
  EXPECT_THAT(store_->ListJobs({{}, "run"}, 1, token),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("filters")));
}

TEST_P(StoreTest, OddJobIdsAreNotFound) {
  Add();
  for (const char* id : {"", "1", "job-", "job-01", "job-1 ", "job--1", "job-99999999999999999999", "nope"}) {
    EXPECT_THAT(store_->GetJob(id), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such job"))) << id;
  }
}

TEST_P(StoreTest, IdsAndVersionsAreNotReusedAfterReopening) {
  Add();
  const std::string store_id = store_->store_id();
  const int64_t version = store_->GetJob("job-1")->resource_version();
  Reopen();
  EXPECT_EQ(store_->store_id(), store_id);
  EXPECT_EQ(Add(), "job-2");
  EXPECT_GT(store_->GetJob("job-2")->resource_version(), version);
}

TEST_P(StoreTest, ASecondOwnerIsRefused) {  // STORE-3
  EXPECT_THAT(GetParam().open(folder_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another controller")));
  EXPECT_OK(store_->GetJob(Add()));
}

}  // namespace
}  // namespace sluice::controller
