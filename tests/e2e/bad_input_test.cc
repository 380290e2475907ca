// Wrong input gives one clear message, exit code 2, and nothing is written. A table: what is broken, and what is said.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/tiny_job.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* name;
  std::function<void(const TinyJob&)> damage;  // null: nothing on disk
  std::vector<std::string> overrides;
  std::vector<const char*> said;  // all of them, on standard error
};

void Nothing(const TinyJob&) {}

// A model folder with real weights, made by a run of one step.
void WithWeights(const TinyJob& job) {
  ASSERT_EQ(
      job.Run("made", {"trainer.total_training_steps=1", "trainer.save_freq=-1", "optim.lr_warmup_steps=-1"}).exit_code,
      0);
}

void TruncateWeights(const TinyJob& job) {
  WithWeights(job);
  const std::string path = job.Path("made/huggingface/model.safetensors");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1000);
}

void BreakRow(const TinyJob& job) {
  std::string rows = job.Contents("train.jsonl");
  const size_t third = rows.find('\n', rows.find('\n') + 1) + 1;
  rows.insert(third, "{\"question\": \"q\", \"answer\": }\n");
  job.Write("train.jsonl", rows);
}

std::vector<Case> Cases() {
  return {
      {"UnknownKey", Nothing, {"optim.weigth_decay=0"}, {"optim.weigth_decay", "unknown key", "weight_decay"}},
      {"SeveralErrorsAtOnce", Nothing, {"optim.lr=fast", "data.truncation=both"}, {"optim.lr", "data.truncation"}},
      {"MissingModelFolder", Nothing, {"model.path=/no/such/model"}, {"model.path", "/no/such/model"}},
      {"FolderWithoutModel",
       [](const TinyJob& job) { job.Write("empty/readme", ""); },
       {"model.path=EMPTY"},
       {"model.path", "config.json"}},
      {"NoWeights", Nothing, {"model.init=pretrained"}, {"model"}},
      {"TruncatedSafetensors", TruncateWeights, {"model.init=pretrained", "model.path=MADE"}, {"model.safetensors"}},
      {"WrongVocabularySize", Nothing, {"model.override_config={vocab_size: 600}"}, {"vocab", "600"}},
      {"MalformedRow", BreakRow, {}, {"data.train_files", "train.jsonl:3"}},
      {"EmptyDataSet",
       [](const TinyJob& job) { job.Write("train.jsonl", "\n\n"); },
       {},
       {"data.train_files", "no rows"}},
      {"MissingDataFile", Nothing, {"data.train_files=/no/such.jsonl"}, {"data.train_files", "/no/such.jsonl"}},
      {"MissingColumn", Nothing, {"data.format=messages"}, {"messages", "question"}},
      {"RowTooLong", Nothing, {"data.max_length=16"}, {"data.train_files", "train.jsonl:1", "16"}},
      {"RowsThatFitNoMicroBatch", Nothing, {"data.max_length=256"}, {"data.max_length", "data.max_token_len_per_gpu"}},
      {"BatchThatDoesNotDivide", Nothing, {"trainer.n_gpus_per_node=2"}, {"data.train_batch_size", "5", "2"}},
      {"WorldSizeMismatch", Nothing, {"engine.dp_size=3"}, {"engine.dp_size", "3", "trainer.nnodes"}},
      {"WarmUpLongerThanTheRun", Nothing, {"optim.lr_warmup_steps=8"}, {"optim.lr_warmup_steps", "8"}},
      {"ResumePathThatIsNot",
       Nothing,
       {"trainer.resume_mode=resume_path", "trainer.resume_from_path=/no/global_step_3"},
       {"trainer.resume_from_path"}},
      {"SeveralHosts", Nothing, {"trainer.nnodes=2", "data.train_batch_size=4"}, {"trainer.nnodes", "sluice submit"}},
      {"BrokenTemplate", Nothing, {"model.custom_chat_template=\"{% for m in messages %}\""}, {"template"}},
      {"NoGpu", Nothing, {"engine.device=cuda"}, {"engine.device", "cuda"}},
  };
}

class BadInputTest : public ::testing::TestWithParam<Case> {};

TEST_P(BadInputTest, IsExplainedAndWritesNothing) {
  const TinyJob job;
  GetParam().damage(job);
  std::vector<std::string> overrides;
  for (std::string override : GetParam().overrides) {
    const auto replace = [&](const std::string& word, const std::string& by) {
      const size_t place = override.find(word);
      if (place != override.npos) override.replace(place, word.size(), by);
    };
    replace("EMPTY", job.Path("empty"));
    replace("MADE", job.Path("made/huggingface"));
    overrides.push_back(override);
  }
  const CommandResult run = job.Run("run", overrides);
  EXPECT_EQ(run.exit_code, 2) << run.output << run.errors;
  for (const char* said : GetParam().said) EXPECT_THAT(run.errors, HasSubstr(said));
  EXPECT_FALSE(job.Exists("run")) << "something was written";
}

INSTANTIATE_TEST_SUITE_P(Inputs, BadInputTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// A file system of its own that is too small for a second checkpoint. Needs the right to mount one.
TEST(DiskFullTest, FailsTheJobAndKeepsTheLastCheckpoint) {
  const TinyJob job;
  const std::string mount_point = job.Path("small");
  std::filesystem::create_directory(mount_point);
  ASSERT_EQ(job.Run("whole", {"trainer.total_training_steps=1", "optim.lr_warmup_steps=-1"}).exit_code, 0);
  uintmax_t checkpoint_bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(job.Path("whole/global_step_1"))) {
    if (entry.is_regular_file()) checkpoint_bytes += entry.file_size();
  }
  const std::string size = std::to_string(checkpoint_bytes * 3 / 2);
  if (std::system(("mount -t tmpfs -o size=" + size + " sluice-test " + mount_point + " 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "mounting a small file system is not allowed here";
  }
  const CommandResult run = job.Run("small/run", {"trainer.max_restarts=0"});
  EXPECT_EQ(run.exit_code, 1) << run.output;
  EXPECT_THAT(run.errors, HasSubstr("STORAGE"));
  EXPECT_THAT(run.errors, HasSubstr("No space left"));
  EXPECT_TRUE(job.Exists("small/run/global_step_1/manifest.json"));
  // With room again the run goes on from it and ends as one that was never stopped.
  EXPECT_EQ(std::system(("mount -o remount,size=64m " + mount_point).c_str()), 0);
  const CommandResult resumed = job.Run("small/run");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output << resumed.errors;
  ASSERT_EQ(job.Run("undisturbed").exit_code, 0);
  EXPECT_EQ(job.Contents("small/run/global_step_8/weights.safetensors"),
            job.Contents("undisturbed/global_step_8/weights.safetensors"));
  EXPECT_EQ(std::system(("umount " + mount_point).c_str()), 0);
}

}  // namespace
}  // namespace sluice::testing
