// The job files in configs/ are valid, there is one of each recipe, and what they become can be written and read again.
#include <algorithm>
#include <filesystem>
#include <set>

#include "common/config/file_checks.h"
#include "common/config/idle_keys.h"
#include "common/config/job_reader.h"
#include "common/config/plan.h"
#include "common/config/recipes.h"
#include "common/config/validate.h"
#include "common/config/yaml_writer.h"
#include "common/glob.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

LoadOptions Options(const std::string& file) {
  LoadOptions options;
  options.file = file;
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = std::filesystem::current_path().string();
  return options;
}

// The rows of `spec`'s training files, which are of a line each.
int64_t TrainRows(const v1::JobSpec& spec) {
  int64_t rows = 0;
  for (const std::string& file : spec.data().train_files()) {
    const auto text = PosixFileSystem().ReadFile(file);
    EXPECT_OK(text.status());
    if (text.ok()) rows += std::count(text->begin(), text->end(), '\n');
  }
  return rows;
}

// Of SmolLM2-135M, which the files name and the tree does not hold.
absl::StatusOr<ModelFacts> ModelOf(const v1::JobSpec& spec) {
  return ParseModelFacts(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 49152,
      "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
      "num_key_value_heads": 3, "tie_word_embeddings": true})",
                         spec.model().override_config());
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

TEST(JobFilesTest, ShippedJobsFitTheirDataAndCanBePlanned) {
  for (const std::string& file : Glob("configs/*.yaml", PosixFileSystem())) {
    SCOPED_TRACE(file);
    ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, LoadJobSpec(Options(file)));
    const int64_t rows = TrainRows(spec);
    EXPECT_OK(ToStatus(ValidateJobSpec(spec, {.train_rows = rows})));
    ASSERT_OK_AND_ASSIGN(const ModelFacts model, ModelOf(spec));
    ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(spec, model, {.train_rows = rows}));
    EXPECT_GE(*plan.steps_per_epoch, 2) << "a step of all rows is no example";
    EXPECT_GE(*plan.total_steps, 10);
    EXPECT_THAT(IdleKeys(spec), IsEmpty());
  }
}

TEST(JobFilesTest, EveryRecipeHasAJobFile) {
  std::set<std::string> missing;
  for (const Recipe& recipe : Recipes()) missing.insert(recipe.name);
  std::set<std::string> folders;
  for (const std::string& file : Glob("configs/*.yaml", PosixFileSystem())) {
    ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, LoadJobSpec(Options(file)));
    missing.erase(spec.recipe());
    EXPECT_TRUE(folders.insert(spec.trainer().default_local_dir()).second) << file << " writes where another does";
  }
  EXPECT_THAT(missing, IsEmpty());
}

// They may show what the recipe sets, and then show what it does set.
TEST(JobFilesTest, ShippedJobsGiveTheKeysOfTheirRecipeItsValues) {
  for (const std::string& file : Glob("configs/*.yaml", PosixFileSystem())) {
    SCOPED_TRACE(file);
    ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, LoadJobSpec(Options(file)));
    LoadOptions without = Options(file);
    for (const RecipeDefault& value : FindRecipe(spec.recipe())->defaults) {
      without.overrides.push_back(value.key + "=null");
    }
    ASSERT_OK_AND_ASSIGN(const v1::JobSpec of_recipe, LoadJobSpec(without));
    EXPECT_EQ(of_recipe.DebugString(), spec.DebugString());
  }
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
