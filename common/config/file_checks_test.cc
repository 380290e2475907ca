#include "common/config/file_checks.h"

#include "common/glob.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice {
namespace {

using ::sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileChecksTest : public ::testing::Test {
 protected:
  FileChecksTest() {
    dir_.Write("m/config.json", "{}");
    dir_.Write("m/tokenizer.json", "{}");
    dir_.Write("m/model.safetensors", "");
    dir_.Write("d/b.jsonl", "{}\n\n {} \n{}");
    dir_.Write("d/a.jsonl", "{}\r\n\r\n");
    dir_.Write("d/.hidden.jsonl", "{}");
    dir_.Write("d/c.csv", "");
    spec_.mutable_model()->set_path(dir_.Join("m"));
    spec_.mutable_model()->set_init("pretrained");
    spec_.mutable_data()->add_train_files(dir_.Join("d/a.jsonl"));
    spec_.mutable_trainer()->set_default_local_dir(dir_.Join("run"));
    spec_.mutable_trainer()->set_resume_mode("auto");
  }

  std::string Errors() const { return std::string(ToStatus(CheckFiles(spec_, PosixFileSystem())).message()); }

  TempDir dir_;
  v1::JobSpec spec_;
};

TEST_F(FileChecksTest, CompleteJobPasses) { EXPECT_THAT(Errors(), IsEmpty()); }

TEST_F(FileChecksTest, ModelFolder) {
  spec_.mutable_model()->set_path(dir_.Join("none"));
  EXPECT_EQ(Errors(), "model.path: " + dir_.Join("none") + ": no such folder");
  spec_.mutable_model()->set_path(dir_.Join("m/config.json"));
  EXPECT_THAT(Errors(), HasSubstr("is a file; the folder that holds it is expected"));
  spec_.mutable_model()->set_path(dir_.Join("d"));
  EXPECT_EQ(Errors(), "model.path: " + dir_.Join("d") + " has no config.json (is it a Hugging Face folder?)\n" +
                          "model.path: " + dir_.Join("d") +
                          " has no tokenizer.json; set model.tokenizer_path where it is elsewhere\n" + "model.path: " +
                          dir_.Join("d") + " has no *.safetensors file; for new weights set model.init: random");
  spec_.mutable_model()->set_init("random");
  spec_.mutable_model()->set_hf_config_path(dir_.Join("m"));
  spec_.mutable_model()->set_tokenizer_path(dir_.Join("m"));
  EXPECT_THAT(Errors(), IsEmpty());
  spec_.mutable_model()->set_tokenizer_path(dir_.Join("d"));
  EXPECT_EQ(Errors(), "model.tokenizer_path: " + dir_.Join("d") + " has no tokenizer.json");
}

TEST_F(FileChecksTest, TemplateIsAFileOrATemplate) {
  spec_.mutable_model()->set_custom_chat_template("/none.jinja");
  EXPECT_THAT(Errors(), HasSubstr("model.custom_chat_template: /none.jinja: no such file"));
  spec_.mutable_model()->set_custom_chat_template("{{ messages }}");
  EXPECT_THAT(Errors(), IsEmpty());
}

TEST_F(FileChecksTest, DataFiles) {
  auto& files = *spec_.mutable_data()->mutable_train_files();
  *files.Add() = dir_.Join("d/none.jsonl");
  *files.Add() = dir_.Join("d");
  *files.Add() = dir_.Join("d/*.csv");
  *files.Add() = dir_.Join("x*/*.jsonl");
  EXPECT_EQ(Errors(), "data.train_files[1]: " + dir_.Join("d/none.jsonl") + ": no such file\n" +
                          "data.train_files[2]: " + dir_.Join("d") + " is a folder; write " + dir_.Join("d/*.jsonl") +
                          " for its files\n" + "data.train_files[3]: " + dir_.Join("d/c.csv") +
                          ": expected a .jsonl or .parquet file\n" + "data.train_files[4]: " + dir_.Join("x*/*.jsonl") +
                          ": no such file");
}

TEST_F(FileChecksTest, RunFolder) {
  dir_.Write("run/global_step_7/x", "");
  EXPECT_THAT(Errors(), IsEmpty());
  spec_.mutable_trainer()->set_resume_mode("disable");
  EXPECT_THAT(Errors(), HasSubstr("holds checkpoints (global_step_7)"));
  spec_.mutable_trainer()->set_default_local_dir(dir_.Join("d/c.csv"));
  EXPECT_THAT(Errors(), HasSubstr("trainer.default_local_dir: " + dir_.Join("d/c.csv") + " is a file"));
}

TEST_F(FileChecksTest, ResumePath) {
  spec_.mutable_trainer()->set_resume_mode("resume_path");
  spec_.mutable_trainer()->set_resume_from_path(dir_.Join("run/global_step_9"));
  EXPECT_THAT(Errors(), HasSubstr("trainer.resume_from_path: " + dir_.Join("run/global_step_9") + ": no such folder"));
}

TEST_F(FileChecksTest, GlobInByteOrderWithoutHiddenFiles) {
  EXPECT_THAT(Glob(dir_.Join("?/[ab].jsonl"), PosixFileSystem()),
              ElementsAre(dir_.Join("d/a.jsonl"), dir_.Join("d/b.jsonl")));
  EXPECT_THAT(Glob(dir_.Join("d/*.jsonl"), PosixFileSystem()),
              ElementsAre(dir_.Join("d/a.jsonl"), dir_.Join("d/b.jsonl")));
  EXPECT_THAT(Glob(dir_.Join("*"), PosixFileSystem()), IsEmpty());  // folders are no files
  dir_.Write("d/[ab].jsonl", "{}");
  EXPECT_THAT(Glob(dir_.Join("d/[ab].jsonl"), PosixFileSystem()), ElementsAre(dir_.Join("d/[ab].jsonl")));
}

}  // namespace
}  // namespace sluice
