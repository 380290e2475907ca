#include "engine/checkpoint/checkpoint_listing.h"

#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "common/testing/fault_injection_file_system.h"
#include "common/testing/status_matchers.h"
#include "engine/checkpoint/checkpoint_store.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::FaultInjectionFileSystem;
using ::sluice::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CheckpointNameTest, ThereAndBack) {
  EXPECT_EQ(CheckpointName(20), "global_step_20");
  EXPECT_EQ(StepOfCheckpointName("global_step_20"), 20);
  EXPECT_EQ(StepOfCheckpointName("global_step_0"), 0);
  for (const char* name :
       {"global_step_", "global_step_-1", "global_step_020", "global_step_+2", "global_step_ 2", "global_step_2 ",
        "global_step_2.staging-a", "step_2", "", "global_step_99999999999999999999"}) {
    EXPECT_EQ(StepOfCheckpointName(name), std::nullopt) << name;
  }
}

TEST(StepsToDeleteTest, KeepsTheNewest) {
  constexpr auto kNone = std::nullopt;
  EXPECT_THAT(StepsToDelete({10, 20, 30}, 0, 30, kNone), IsEmpty());
  EXPECT_THAT(StepsToDelete({10, 20, 30}, 3, 30, kNone), IsEmpty());
  EXPECT_THAT(StepsToDelete({30, 10, 20}, 2, 30, kNone), ElementsAre(10));
  EXPECT_THAT(StepsToDelete({10, 20, 30}, 1, 30, kNone), ElementsAre(10, 20));
  EXPECT_THAT(StepsToDelete({30}, 1, 30, kNone), IsEmpty());
  EXPECT_THAT(StepsToDelete({}, 1, 30, kNone), IsEmpty());
  // A step just committed stays, though older ones of another run have larger numbers; so does the largest.
  EXPECT_THAT(StepsToDelete({15, 20, 30}, 1, 15, kNone), ElementsAre(20));
}

TEST(StepsToDeleteTest, KeepsTheBestBesides) {
  EXPECT_THAT(StepsToDelete({10, 20, 30, 40}, 2, 40, 10), ElementsAre(20)) << "10 and the newest two";
  EXPECT_THAT(StepsToDelete({10, 20, 30, 40}, 2, 40, 30), ElementsAre(10, 20)) << "it is one of the newest two";
  EXPECT_THAT(StepsToDelete({10, 20, 30, 40}, 1, 40, 20), ElementsAre(10, 30));
  EXPECT_THAT(StepsToDelete({10, 20}, 1, 20, 10), IsEmpty());
}

CheckpointInfo Good(int64_t step, const std::string& metadata_json = "{}") {
  return {step, "/run/" + CheckpointName(step), absl::OkStatus(), metadata_json};
}
CheckpointInfo Damaged(int64_t step) {
  return {step, "/run/" + CheckpointName(step), absl::DataLossError(CheckpointName(step) + " is damaged")};
}

std::optional<double> Number(const std::string& metadata_json) {
  double number = 0;
  if (!absl::SimpleAtod(metadata_json, &number)) return std::nullopt;
  return number;
}

TEST(BestCheckpointTest, IsTheIntactOneOfTheLargestMerit) {
  CheckpointInfo damaged = Damaged(40);
  damaged.metadata_json = "9";
  const auto best =
      BestCheckpoint({Good(10, "1"), Good(20, "3"), Good(30), damaged, Good(50, "3"), Good(60, "nan")}, Number);
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(best->step, 20) << "50 is no better, 40 is damaged, 30 and 60 have no number";
  EXPECT_FALSE(BestCheckpoint({Good(10), damaged}, Number).has_value());
  EXPECT_FALSE(BestCheckpoint({}, Number).has_value());
}

std::optional<int64_t> Step(const absl::StatusOr<ResumeDecision>& decision) {
  EXPECT_OK(decision);
  return decision.ok() && decision->checkpoint.has_value() ? std::optional(decision->checkpoint->step) : std::nullopt;
}

TEST(ResolveResumeTest, Auto) {
  EXPECT_EQ(Step(ResolveResume({}, ResumeMode::kAuto, "")), std::nullopt);
  EXPECT_EQ(Step(ResolveResume({Good(10), Good(20)}, ResumeMode::kAuto, "")), 20);
  EXPECT_EQ(Step(ResolveResume({Good(10), Damaged(20)}, ResumeMode::kAuto, "")), 10);
  EXPECT_THAT(ResolveResume({Good(10), Damaged(20)}, ResumeMode::kAuto, "")->reason,
              HasSubstr("passed over: global_step_20 is damaged"));
  // Never from the beginning in silence while there was a run.
  EXPECT_THAT(ResolveResume({Damaged(10)}, ResumeMode::kAuto, ""),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("resume_mode: disable")));
}

TEST(ResolveResumeTest, Disable) {
  EXPECT_EQ(Step(ResolveResume({Good(10)}, ResumeMode::kDisable, "/run/global_step_10")), std::nullopt);
  EXPECT_EQ(Step(ResolveResume({Damaged(10)}, ResumeMode::kDisable, "")), std::nullopt);
}

TEST(ResolveResumeTest, Path) {
  EXPECT_EQ(Step(ResolveResume({Good(10), Good(20)}, ResumeMode::kResumePath, "/run/global_step_10")), 10);
  EXPECT_EQ(Step(ResolveResume({Good(10), Good(20)}, ResumeMode::kResumePath, "/run/global_step_10/")), 10);
  EXPECT_THAT(ResolveResume({Good(10)}, ResumeMode::kResumePath, "/run/global_step_30"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("resume_from_path: /run/global_step_30")));
  EXPECT_THAT(ResolveResume({Good(10), Damaged(20)}, ResumeMode::kResumePath, "/run/global_step_20"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("resume_from_path: global_step_20 is damaged")));
  for (const char* path : {"/run", "", "/run/global_step_x"}) {
    EXPECT_THAT(ResolveResume({Good(10)}, ResumeMode::kResumePath, path),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("global_step_<N>")))
        << path;
  }
}

TEST(ParseResumeModeTest, Names) {
  EXPECT_EQ(*ParseResumeMode("auto"), ResumeMode::kAuto);
  EXPECT_EQ(*ParseResumeMode("disable"), ResumeMode::kDisable);
  EXPECT_EQ(*ParseResumeMode("resume_path"), ResumeMode::kResumePath);
  EXPECT_THAT(ParseResumeMode("Auto"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.resume_mode: \"Auto\"")));
}

class FindResumeTest : public ::testing::Test {
 protected:
  void Save(int64_t step) {
    ASSERT_OK_AND_ASSIGN(CheckpointStore store, CheckpointStore::Create(files_, {.folder = "/run", .attempt = "a"}));
    ASSERT_OK_AND_ASSIGN(PendingCheckpoint pending, store.Begin(step));
    ASSERT_OK(pending.AddFile("state", "contents"));
    ASSERT_OK(pending.Commit(pending.entries(), 1, "{}"));
  }
  absl::StatusOr<ResumeDecision> Find(ResumeMode mode, const std::string& path = "") {
    return FindResume(files_, "/run", mode, path);
  }

  FaultInjectionFileSystem files_;
};

TEST_F(FindResumeTest, PassesOverAFlippedByte) {
  EXPECT_EQ(Step(Find(ResumeMode::kAuto)), std::nullopt);
  Save(10);
  Save(20);
  EXPECT_EQ(Step(Find(ResumeMode::kAuto)), 20);
  ASSERT_OK(files_.FlipByte("/run/global_step_20/state", 3));
  EXPECT_EQ(Step(Find(ResumeMode::kAuto)), 10);
  EXPECT_THAT(Find(ResumeMode::kAuto)->reason, HasSubstr("/run/global_step_20: state was changed"));
  EXPECT_THAT(Find(ResumeMode::kResumePath, "/run/global_step_20"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum differs")));
  EXPECT_EQ(Step(Find(ResumeMode::kResumePath, "/run/global_step_10")), 10);
  ASSERT_OK(files_.FlipByte("/run/global_step_10/manifest.json", 20));
  EXPECT_FALSE(Find(ResumeMode::kAuto).ok());
  EXPECT_EQ(Step(Find(ResumeMode::kDisable)), std::nullopt);
}

TEST_F(FindResumeTest, ARenamedFolderIsNotAnotherStep) {
  Save(10);
  ASSERT_OK(files_.Rename("/run/global_step_10", "/run/global_step_99"));
  ASSERT_OK_AND_ASSIGN(const std::vector<CheckpointInfo> listing, ListCheckpoints(files_, "/run"));
  ASSERT_EQ(listing.size(), 1u);
  EXPECT_THAT(listing[0].problem, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("holds the checkpoint of step 10")));
}

TEST_F(FindResumeTest, ReadErrorsAreNotTakenForAnEmptyFolder) {
  Save(10);
  for (int64_t n = 0;; ++n) {
    files_.FailAtOperation(n, absl::UnavailableError("network"));
    const absl::StatusOr<ResumeDecision> decision = Find(ResumeMode::kAuto);
    if (!files_.fault_happened()) break;
    EXPECT_FALSE(decision.ok()) << n;
  }
}

}  // namespace
}  // namespace sluice::engine
