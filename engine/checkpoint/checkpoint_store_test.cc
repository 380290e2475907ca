#include "engine/checkpoint/checkpoint_store.h"

#include <gtest/gtest.h>

#include "common/testing/fault_injection_file_system.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::FaultInjectionFileSystem;
using ::sluice::testing::StatusIs;
using ::sluice::testing::Surviving;
using ::sluice::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CheckpointStore MakeStore(FileSystem& files, const std::string& folder, int64_t keep = 0,
                          const std::string& attempt = "first") {
  return *CheckpointStore::Create(files, {.folder = folder, .max_ckpt_to_keep = keep, .attempt = attempt});
}

// The weights of a step: enough to tell steps apart.
std::string Weights(int64_t step) { return "weights of step " + std::to_string(step); }

// Saves as two ranks do; rank 1's entries travel as text.
absl::StatusOr<CommitResult> Save(CheckpointStore& store, int64_t step) {
  ASSIGN_OR_RETURN(PendingCheckpoint rank0, store.Begin(step));
  ASSIGN_OR_RETURN(PendingCheckpoint rank1, store.Begin(step));
  const std::string weights = Weights(step);
  const TensorData tensor = {{"w", DataType::kU8, {static_cast<int64_t>(weights.size())}},
                             std::as_bytes(std::span(weights))};
  RETURN_IF_ERROR(rank0.AddTensors("weights.safetensors", {tensor}, {}));
  RETURN_IF_ERROR(rank0.AddFile(RankStateName(0), "{}"));
  RETURN_IF_ERROR(rank1.AddFile(RankStateName(1), "{\"seed\":1}"));
  ASSIGN_OR_RETURN(std::vector<FileEntry> entries, ParseFileEntries(SerializeFileEntries(rank1.entries())));
  entries.insert(entries.end(), rank0.entries().begin(), rank0.entries().end());
  return rank0.Commit(entries, 2, "{\"model\":\"tiny\"}");
}

// The checkpoint of the step, with all its contents, or why not.
absl::Status CheckContents(const CheckpointStore& store, int64_t step) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, store.Open(step));
  RETURN_IF_ERROR(checkpoint.Verify());
  ASSIGN_OR_RETURN(const SafetensorsFile weights, checkpoint.OpenTensors("weights.safetensors"));
  ASSIGN_OR_RETURN(const TensorData w, weights.Tensor("w"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(w.bytes.data()), w.bytes.size()), Weights(step));
  EXPECT_EQ(*checkpoint.ReadFile("rank_00001.json"), "{\"seed\":1}");
  EXPECT_EQ(checkpoint.manifest().step, step);
  EXPECT_EQ(checkpoint.manifest().files.size(), 3u);
  return absl::OkStatus();
}

std::vector<int64_t> GoodSteps(const CheckpointStore& store) {
  std::vector<int64_t> steps;
  const absl::StatusOr<std::vector<CheckpointInfo>> listing = store.List();
  EXPECT_OK(listing);
  if (!listing.ok()) return steps;
  for (const CheckpointInfo& info : *listing) {
    if (info.problem.ok()) steps.push_back(info.step);
  }
  return steps;
}

std::vector<std::string> Names(FileSystem& files, const std::string& folder) {
  std::vector<std::string> names;
  const absl::StatusOr<std::vector<FolderEntry>> entries = files.ListFolder(folder);
  EXPECT_OK(entries);
  if (!entries.ok()) return names;
  for (const FolderEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

// Both file systems.
class CheckpointStoreTest : public ::testing::TestWithParam<bool> {
 protected:
  FileSystem& files() { return GetParam() ? PosixFileSystem() : memory_; }
  std::string folder() { return GetParam() ? disk_.Join("outputs/run") : "/outputs/run"; }

  TempDir disk_;
  FaultInjectionFileSystem memory_;
};

TEST_P(CheckpointStoreTest, SavesAndLoads) {
  CheckpointStore store = MakeStore(files(), folder());
  EXPECT_THAT(GoodSteps(store), IsEmpty());
  EXPECT_FALSE(store.Latest()->has_value());
  ASSERT_OK_AND_ASSIGN(const CommitResult result, Save(store, 10));
  EXPECT_EQ(result.path, folder() + "/global_step_10");
  ASSERT_OK(Save(store, 9));
  EXPECT_OK(CheckContents(store, 10));
  EXPECT_OK(CheckContents(store, 9));
  EXPECT_THAT(GoodSteps(store), ElementsAre(9, 10));
  EXPECT_EQ((*store.Latest())->step, 10);
  EXPECT_THAT(Names(files(), folder()), ElementsAre("global_step_10", "global_step_9"));
  EXPECT_THAT(Names(files(), folder() + "/global_step_9"),
              ElementsAre("manifest.json", "rank_00000.json", "rank_00001.json", "weights.safetensors"));
  EXPECT_EQ(store.Open(9)->manifest().metadata_json, "{\"model\":\"tiny\"}");
  EXPECT_THAT(store.Open(11), StatusIs(absl::StatusCode::kNotFound, HasSubstr("global_step_11")));
  EXPECT_THAT(store.Open(9)->ReadFile("none"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("lists no file none")));
}

TEST_P(CheckpointStoreTest, RetentionCountsTheFolderAlsoAfterARestart) {
  for (int64_t step = 1; step <= 4; ++step) {
    CheckpointStore store = MakeStore(files(), folder(), 2, "attempt" + std::to_string(step));  // as after a resume
    ASSERT_OK_AND_ASSIGN(const CommitResult result, Save(store, step));
    EXPECT_OK(result.retention);
    EXPECT_EQ(result.deleted_steps.size(), step > 2 ? 1u : 0u);
  }
  EXPECT_THAT(Names(files(), folder()), ElementsAre("global_step_3", "global_step_4"));
}

TEST_P(CheckpointStoreTest, AStepIsCommittedOnce) {
  CheckpointStore first = MakeStore(files(), folder(), 0, "first"), second = MakeStore(files(), folder(), 0, "second");
  ASSERT_OK_AND_ASSIGN(PendingCheckpoint a, first.Begin(5));
  ASSERT_OK_AND_ASSIGN(PendingCheckpoint b, second.Begin(5));
  ASSERT_OK(a.AddFile("who", "first"));
  ASSERT_OK(b.AddFile("who", "second"));
  ASSERT_OK(b.Commit(b.entries(), 1, "{}"));
  EXPECT_THAT(a.Commit(a.entries(), 1, "{}"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("global_step_5: this step is committed")));
  EXPECT_THAT(first.Begin(5), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("global_step_5")));
  ASSERT_OK(a.Abort());
  EXPECT_EQ(*first.Open(5)->ReadFile("who"), "second");
  EXPECT_THAT(Names(files(), folder()), ElementsAre("global_step_5"));
}

TEST_P(CheckpointStoreTest, ADamagedStepIsSetAsideBySavingItAgain) {
  CheckpointStore store = MakeStore(files(), folder());
  ASSERT_OK(Save(store, 5));
  ASSERT_OK(files().RemoveFile(folder() + "/global_step_5/rank_00001.json"));
  EXPECT_THAT(store.Open(5), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank_00001.json is missing")));
  ASSERT_OK(Save(store, 5));
  EXPECT_OK(CheckContents(store, 5));
  EXPECT_THAT(Names(files(), folder()), ElementsAre("global_step_5", "global_step_5.set-aside-first"));
}

TEST_P(CheckpointStoreTest, RunFromAnOlderStepSetsTheNewerAside) {
  CheckpointStore store = MakeStore(files(), folder());
  for (const int64_t step : {10, 20, 30}) ASSERT_OK(Save(store, step));
  CheckpointStore branch = MakeStore(files(), folder(), 0, "branch");
  EXPECT_THAT(*branch.SetAsideNewerThan(10), ElementsAre(30, 20));
  EXPECT_THAT(GoodSteps(branch), ElementsAre(10));
  ASSERT_OK(Save(branch, 20));
  EXPECT_THAT(*branch.SetAsideNewerThan(-1), ElementsAre(20, 10));  // twice the same name
  EXPECT_THAT(GoodSteps(branch), IsEmpty());
  EXPECT_THAT(Names(files(), folder()),
              ElementsAre("global_step_10.set-aside-branch", "global_step_20.set-aside-branch",
                          "global_step_20.set-aside-branch-1", "global_step_30.set-aside-branch"));
}

TEST_P(CheckpointStoreTest, OnlyTheOwnerRemovesWhatOtherRunsLeft) {
  CheckpointStore crashed = MakeStore(files(), folder(), 0, "crashed"), store = MakeStore(files(), folder(), 1, "now");
  ASSERT_OK(crashed.Begin(7));
  ASSERT_OK(CreateFolderWithParents(files(), folder() + "/global_step_3.deleting/x"));
  ASSERT_OK(CreateFolderWithParents(files(), folder() + "/notes.staging-x"));
  ASSERT_OK(Save(store, 8));
  ASSERT_OK_AND_ASSIGN(PendingCheckpoint pending, store.Begin(9));
  EXPECT_THAT(Names(files(), folder()), ElementsAre("global_step_3.deleting", "global_step_7.staging-crashed",
                                                    "global_step_8", "global_step_9.staging-now", "notes.staging-x"));
  EXPECT_THAT(*store.RemoveStale(), ElementsAre("global_step_3.deleting", "global_step_7.staging-crashed"));
  EXPECT_THAT(Names(files(), folder()), ElementsAre("global_step_8", "global_step_9.staging-now", "notes.staging-x"));
}

TEST_P(CheckpointStoreTest, CommitTakesOnlyWhatIsThere) {
  CheckpointStore store = MakeStore(files(), folder());
  ASSERT_OK_AND_ASSIGN(PendingCheckpoint pending, store.Begin(1));
  ASSERT_OK(pending.AddFile("leftover", "of an earlier try"));
  ASSERT_OK_AND_ASSIGN(PendingCheckpoint again, store.Begin(1));
  ASSERT_OK(again.AddFile("a", "1"));
  std::vector<FileEntry> entries = again.entries();
  entries.push_back({"b", 1, 0});
  EXPECT_THAT(again.Commit(entries, 2, "{}"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("b is not there"), HasSubstr("all hosts share"))));
  entries.back() = {"a", 1, 0};
  EXPECT_THAT(again.Commit(entries, 2, "{}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a is given twice")));
  EXPECT_THAT(again.Commit(again.entries(), 2, "no"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("metadata")));
  ASSERT_OK(again.Commit(again.entries(), 2, "{}"));
  EXPECT_THAT(Names(files(), folder() + "/global_step_1"), ElementsAre("a", "manifest.json"));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CheckpointStoreTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Posix" : "Memory"; });

TEST(CheckpointStoreOptionsTest, NamesTheKey) {
  FaultInjectionFileSystem files;
  const auto create = [&](const std::string& folder, int64_t keep, const std::string& attempt) {
    return CheckpointStore::Create(files, {.folder = folder, .max_ckpt_to_keep = keep, .attempt = attempt}).status();
  };
  EXPECT_OK(create("/a", 0, "job-1_2"));
  EXPECT_THAT(create("", 0, "a"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.default_local_dir")));
  EXPECT_THAT(create("/a", -1, "a"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.max_ckpt_to_keep")));
  EXPECT_THAT(create("/a", 0, "a/b"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attempt")));
  EXPECT_THAT(create("/a", 0, ""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("attempt")));
}

// Damage to each byte of each file is found on loading, and a truncated file on opening; no wrong byte is ever
// returned.
TEST(CheckpointDamageTest, EveryFlippedByteAndCutIsFound) {
  FaultInjectionFileSystem files;
  CheckpointStore store = MakeStore(files, "/run");
  ASSERT_OK(Save(store, 1));
  for (const std::string& name : Names(files, "/run/global_step_1")) {
    const std::string path = "/run/global_step_1/" + name;
    ASSERT_OK_AND_ASSIGN(const std::string good, files.ReadFile(path));
    for (size_t i = 0; i < good.size(); ++i) {
      ASSERT_OK(files.FlipByte(path, i));
      const absl::Status status = CheckContents(store, 1);
      // Space and NUL in the manifest's indentation: still the same JSON or none at all.
      if (!(name == "manifest.json" && (good[i] == ' ' || good[i] == '\n'))) {
        EXPECT_FALSE(status.ok()) << name << " byte " << i;
      }
      if (name != "manifest.json") {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr(name)));
      }
      ASSERT_OK(files.FlipByte(path, i));
    }
    ASSERT_OK(WriteFileAtomically(files, path, good.substr(0, good.size() - 1)));
    if (name != "manifest.json") {
      EXPECT_THAT(GoodSteps(store), IsEmpty()) << name;
    }
    ASSERT_OK(WriteFileAtomically(files, path, good));
  }
  EXPECT_OK(CheckContents(store, 1));
}

TEST(CheckpointFaultTest, FullDiskLeavesThePreviousAndTheSpace) {
  FaultInjectionFileSystem files;
  CheckpointStore store = MakeStore(files, "/run", 1);
  ASSERT_OK(Save(store, 1));
  uint64_t used = 0;
  for (const std::string& name : Names(files, "/run/global_step_1"))
    used += files.Stat("/run/global_step_1/" + name)->bytes;
  for (uint64_t free = 0; free < used; free += 7) {
    files.SetCapacity(used + free);
    EXPECT_THAT(Save(store, 2),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr("/run/global_step_2.staging-first/"), HasSubstr("free space there"))));
    EXPECT_OK(CheckContents(store, 1));
    // Begin does nothing but open the folder again; rank 0 gives up.
    files.SetCapacity(std::nullopt);
    ASSERT_OK(store.Begin(2)->Abort());
    EXPECT_THAT(Names(files, "/run"), ElementsAre("global_step_1"));
  }
  ASSERT_OK(Save(store, 2));
  EXPECT_THAT(Names(files, "/run"), ElementsAre("global_step_2"));
}

// A run that keeps one checkpoint stops at each operation of saving the next one, by power loss, by kill -9 and by an
// error of the file system. Afterwards: the newest checkpoint is whole; it is the new one if Commit had returned OK;
// and the run goes on.
TEST(CheckpointFaultTest, EveryOperationMayBeTheLast) {
  for (const auto& [crash, surviving, seeds] :
       {std::tuple(true, Surviving::kSynced, 1), std::tuple(true, Surviving::kEverything, 1),
        std::tuple(true, Surviving::kRandom, 8), std::tuple(false, Surviving::kEverything, 1)}) {
    for (int seed = 0; seed < seeds; ++seed) {
      bool reached = true;
      for (int64_t n = 0; reached; ++n) {
        SCOPED_TRACE(::testing::Message() << "operation " << n << " crash " << crash << " seed " << seed);
        FaultInjectionFileSystem files;
        CheckpointStore store = MakeStore(files, "/run", 1);
        ASSERT_OK(Save(store, 1));
        crash ? files.CrashAtOperation(n) : files.FailAtOperation(n, absl::UnavailableError("device"));
        const absl::StatusOr<CommitResult> saved = Save(store, 2);
        reached = files.fault_happened();
        EXPECT_TRUE(reached || (saved.ok() && n > 30));  // the loop ends with a power loss after a whole save
        files.Restart(surviving, static_cast<uint64_t>(n * 100 + seed));

        CheckpointStore next = MakeStore(files, "/run", 1, "second");
        ASSERT_OK_AND_ASSIGN(const ResumeDecision decision, FindResume(files, "/run", ResumeMode::kAuto, ""));
        ASSERT_TRUE(decision.checkpoint.has_value());
        const int64_t step = decision.checkpoint->step;
        EXPECT_OK(CheckContents(next, step));
        if (saved.ok()) {
          EXPECT_EQ(step, 2);
        }

        ASSERT_OK(next.RemoveStale());
        for (int64_t again = step + 1; again <= 3; ++again) ASSERT_OK(Save(next, again));
        EXPECT_OK(CheckContents(next, 3));
        EXPECT_THAT(GoodSteps(next), ElementsAre(3));
        ASSERT_OK(next.RemoveStale());
        EXPECT_THAT(Names(files, "/run"), ElementsAre("global_step_3"));
      }
    }
  }
}

// The very first save: what a crash leaves is no checkpoint or a whole one.
TEST(CheckpointFaultTest, FirstSaveIsWholeOrAbsent) {
  for (int64_t n = 0;; ++n) {
    FaultInjectionFileSystem files;
    CheckpointStore store = MakeStore(files, "/outputs/run");
    files.CrashAtOperation(n);
    const bool saved = Save(store, 1).ok();
    if (!files.fault_happened()) break;
    files.Restart(Surviving::kRandom, static_cast<uint64_t>(n));
    ASSERT_OK_AND_ASSIGN(const ResumeDecision decision, FindResume(files, "/outputs/run", ResumeMode::kAuto, ""));
    if (decision.checkpoint.has_value()) {
      EXPECT_OK(CheckContents(store, 1));
    } else {
      EXPECT_FALSE(saved);
    }
  }
}

}  // namespace
}  // namespace sluice::engine
