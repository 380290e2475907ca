// The job files in configs/ are valid, and what they become can be written and read again.
#include <filesystem>

#include "common/config/file_checks.h"
#include "common/config/job_reader.h"
#include "common/config/yaml_writer.h"
#include "common/glob.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LoadOptions Options(const std::string& file) {
  LoadOptions options;
  options.file = file;
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = std::filesystem::current_path().string();
  return options;
}

TEST(JobFilesTest, ShippedJobsAreValidAndTheirDataIsThere) {
  int files = 0;
  for (const std::string& file : Glob("configs/*.yaml", PosixFileSystem())) {
    SCOPED_TRACE(file);
    ++files;
    ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, LoadJobSpec(Options(file)));
    for (const ConfigError& error : CheckFiles(spec, PosixFileSystem())) {
      EXPECT_THAT(ToString(error), Not(HasSubstr("data."))) << "the model is fetched, the data is in the tree";
    }
    LoadOptions again = Options("again.yaml");
    again.text = WriteJobSpec(spec);
    ASSERT_OK_AND_ASSIGN(const v1::JobSpec reread, LoadJobSpec(again));
    EXPECT_EQ(reread.DebugString(), spec.DebugString()) << *again.text;
  }
  EXPECT_GE(files, 3);
}

TEST(YamlWriterTest, OddTextsSurvive) {
  v1::JobSpec spec;
  LoadOptions options = Options("job.yaml");
  options.text =
      "model: {path: m, override_config: {a: 'true', b: '12', c: [x, null, 1e-5], 'd e': {f: no}, g: '~'}}\ndata: "
      "{train_files: t}\n";
  ASSERT_OK_AND_ASSIGN(spec, LoadJobSpec(options));
  for (const std::string text :
       {"",           "~",     "null",  "a: b", "# x", "- y", "\"q\" \\ z", "two\nlines\n", "tab\t", "${HOME} $${X}",
        "größe 模型", "yes",   "1e5",   "'",    "{x}", "*a",  "&b",         "!t",           "%d",    "@e",
        "`f",         " lead", "trail "}) {
    spec.mutable_data()->set_system_prompt(text);
    spec.mutable_data()->set_train_files(0, "/x/" + text + "y");
    (*spec.mutable_model()->mutable_override_config()->mutable_fields())["k"].set_string_value(text);
    options.text = WriteJobSpec(spec);
    const auto reread = LoadJobSpec(options);
    ASSERT_TRUE(reread.ok()) << reread.status() << *options.text;
    EXPECT_EQ(reread->data().system_prompt(), text);
    EXPECT_EQ(reread->data().train_files(0), "/x/" + text + "y");
    EXPECT_EQ(reread->model().override_config().fields().at("k").string_value(), text);
    EXPECT_EQ(reread->model().override_config().fields().at("a").string_value(), "true");
    EXPECT_EQ(reread->model().override_config().fields().at("b").string_value(), "12");
  }
}

}  // namespace
}  // namespace sluice
