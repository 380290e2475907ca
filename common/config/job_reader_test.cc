#include "common/config/job_reader.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMinimal[] = "model: {path: m}\ndata: {train_files: t.jsonl}\n";

LoadOptions Options(const std::string& text, std::vector<std::string> overrides = {}) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text = text;
  options.overrides = std::move(overrides);
  options.env = [](const std::string& name) -> std::optional<std::string> {
    if (name == "HOME") return "/home/ada";
    if (name == "LR") return "3e-4";
    if (name == "EMPTY") return "";
    return std::nullopt;
  };
  options.working_folder = "/folder";
  return options;
}

std::string Errors(const std::string& text, std::vector<std::string> overrides = {}) {
  return std::string(ToStatus(LoadJob(Options(text, std::move(overrides))).errors).message());
}

absl::StatusOr<v1::JobSpec> Load(const std::string& text, std::vector<std::string> overrides = {}) {
  return LoadJobSpec(Options(text, std::move(overrides)));
}

TEST(JobReaderTest, MinimalFileGetsEveryDefault) {
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, Load(kMinimal));
  EXPECT_EQ(spec.name(), "job");
  EXPECT_EQ(spec.recipe(), "sft");
  EXPECT_EQ(spec.model().path(), "/folder/m");
  EXPECT_THAT(spec.data().train_files(), ElementsAre("/folder/t.jsonl"));
  EXPECT_EQ(spec.data().max_length(), 1024);
  EXPECT_TRUE(spec.data().shuffle());
  EXPECT_DOUBLE_EQ(spec.optim().lr(), 1e-5);
  EXPECT_THAT(spec.optim().betas(), ElementsAre(0.9, 0.999));
  EXPECT_THAT(spec.checkpoint().save_contents(), ElementsAre("model", "optimizer", "extra"));
  EXPECT_EQ(spec.trainer().default_local_dir(), "/folder/runs/job");
  EXPECT_FALSE(spec.engine().has_dp_size());
  EXPECT_FALSE(spec.trainer().has_total_training_steps());
  EXPECT_EQ(spec.data().cache_dir(), "");
}

TEST(JobReaderTest, FileThenOverridesWin) {
  const std::string text = absl::StrCat(kMinimal, "optim: {lr: 1e-4, betas: [0.9, 0.95]}\n");
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec,
                       Load(text, {"optim.lr=2e-4", "optim.lr=${LR}", "data.train_files=[a.jsonl, b.jsonl]", "name=007",
                                   "engine.dtype=bf16", "model.override_config.rope_theta=1e6"}));
  EXPECT_DOUBLE_EQ(spec.optim().lr(), 3e-4);
  EXPECT_THAT(spec.optim().betas(), ElementsAre(0.9, 0.95));
  EXPECT_THAT(spec.data().train_files(), ElementsAre("/folder/a.jsonl", "/folder/b.jsonl"));
  EXPECT_EQ(spec.name(), "007");
  EXPECT_EQ(spec.engine().model_dtype(), "bf16");
  EXPECT_EQ(spec.model().override_config().fields().at("rope_theta").number_value(), 1e6);
}

TEST(JobReaderTest, OverrideRepairsAndUnsets) {
  const std::string text = absl::StrCat(kMinimal, "optim: {lr: abc}\ntrainer: {total_training_steps: 5}\n");
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, Load(text, {"optim.lr=0.1", "trainer.total_training_steps=null"}));
  EXPECT_DOUBLE_EQ(spec.optim().lr(), 0.1);
  EXPECT_FALSE(spec.trainer().has_total_training_steps());
  // An alias in the file and the name in the override are one key.
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec aliased,
                       Load("model: {path: m}\ndata: {train_files: t, preset: gsm8k}", {"data.format=text"}));
  EXPECT_EQ(aliased.data().format(), "text");
}

TEST(JobReaderTest, OverrideErrorsNameTheOverride) {
  EXPECT_EQ(Errors(kMinimal, {"optim.lr=abc"}), "override optim.lr=abc: optim.lr: expected a number, got \"abc\"");
  EXPECT_EQ(Errors(kMinimal, {"optim.learning_rate=1"}),
            "override optim.learning_rate=1: optim.learning_rate: unknown key (did you mean lr?)");
  EXPECT_EQ(Errors(kMinimal, {"optim.lr.x=1"}),
            "override optim.lr.x=1: optim.lr: is one value (number) and has no keys below it");
  EXPECT_THAT(Errors(kMinimal, {"optim.lr"}), HasSubstr("expected key=value"));
  EXPECT_THAT(Errors(kMinimal, {"optim.lr=[1"}), HasSubstr("override optim.lr=[1"));
  EXPECT_EQ(Errors(kMinimal, {"trainer.n_gpus_per_node=3"}),
            "job.yaml: data.train_batch_size: 256 rows do not divide by 3 ranks (256 = 85 * 3 + 1); use 255 or 258");
}

TEST(JobReaderTest, Environment) {
  const auto with_lr = [](const std::string& lr) { return absl::StrCat(kMinimal, "optim:\n  lr: ", lr, "\n"); };
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec set, Load(with_lr("${LR}")));
  EXPECT_DOUBLE_EQ(set.optim().lr(), 3e-4);
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec fallback, Load(with_lr("${UNSET,2e-3}")));
  EXPECT_DOUBLE_EQ(fallback.optim().lr(), 2e-3);
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec null, Load(with_lr("${UNSET,null}")));
  EXPECT_DOUBLE_EQ(null.optim().lr(), 1e-5);
  EXPECT_EQ(Errors(with_lr("${UNSET}")),
            "job.yaml:4: optim.lr: environment variable UNSET is not set (set it, or write ${UNSET,default})");
  EXPECT_THAT(Errors(with_lr("${EMPTY}")), HasSubstr("optim.lr: expected a number, got \"\""));
  EXPECT_THAT(Errors(with_lr("${LR")), HasSubstr("without a closing }"));
  EXPECT_THAT(Errors(with_lr("${1X}")), HasSubstr("no reference to an environment variable"));
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec text,
                       Load(absl::StrCat("name: n\nmodel: {path: '${HOME}/m'}\n",
                                         "data: {train_files: t, system_prompt: 'cost $5, $${LR} and $${'}\n")));
  EXPECT_EQ(text.model().path(), "/home/ada/m");
  EXPECT_EQ(text.data().system_prompt(), "cost $5, ${LR} and ${");
}

TEST(JobReaderTest, Paths) {
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec,
                       Load("model: {path: ~/qwen/, custom_chat_template: t.jinja}\n"
                            "data: {train_files: ['../x/*.jsonl', /abs/y.parquet], cache_dir: ./c}\n"));
  EXPECT_EQ(spec.model().path(), "/home/ada/qwen");
  EXPECT_THAT(spec.data().train_files(), ElementsAre("/x/*.jsonl", "/abs/y.parquet"));
  EXPECT_EQ(spec.data().cache_dir(), "/folder/c");
  EXPECT_EQ(spec.model().custom_chat_template(), "/folder/t.jinja");
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec jinja,
                       Load("model: {path: m, custom_chat_template: '{{ messages }}'}\ndata: {train_files: t}\n"));
  EXPECT_EQ(jinja.model().custom_chat_template(), "{{ messages }}");
  EXPECT_THAT(Errors("model: {path: ~bob/m}\ndata: {train_files: t}\n"), HasSubstr("model.path: \"~bob/m\": only ~"));
}

TEST(JobReaderTest, AllErrorsAtOnceWithLineAndPath) {
  const std::string text =
      "model:\n"
      "  path: [a]\n"
      "data:\n"
      "  train_files: [t, [u]]\n"
      "  max_length: 1e99\n"
      "optim: {lr: -1, weigth_decay: 0.1, betas: [0.9]}\n"
      "trianer: {}\n"
      "engine: 3\n";
  EXPECT_EQ(Errors(text),
            "job.yaml:2: model.path: expected a path, got a list\n"
            "job.yaml:4: data.train_files[1]: expected a single value, got a list\n"
            "job.yaml:5: data.max_length: expected a whole number, got \"1e99\"\n"
            "job.yaml:6: optim.lr: must be at least 0, is -1\n"
            "job.yaml:6: optim.weigth_decay: unknown key (did you mean weight_decay?)\n"
            "job.yaml:6: optim.betas: has 1 elements (exactly 2 elements, at least 0, below 1)\n"
            "job.yaml:7: trianer: unknown key (did you mean trainer?)\n"
            "job.yaml:8: engine: expected a map of keys, got a single value");
}

TEST(JobReaderTest, TroubleDocuments) {
  const auto errors = [](const std::string& name) {
    std::ifstream file(absl::StrCat("tests/golden/config/documents/", name), std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return Errors(text.str());
  };
  EXPECT_THAT(errors("near_miss.yaml"),
              AllOf(HasSubstr("job.yaml:1: optim.learning_rate: unknown key (did you mean lr?)"),
                    HasSubstr("job.yaml:1: optim.weigth_decay: unknown key (did you mean weight_decay?)"),
                    HasSubstr("job.yaml:2: trianer: unknown key (did you mean trainer?)")));
  EXPECT_THAT(errors("confusable.yaml"), AllOf(HasSubstr("is U+043E"), HasSubstr("did you mean optim?")));
  EXPECT_THAT(errors("wrong_level.yaml"),
              AllOf(HasSubstr("job.yaml:1: optim: is empty"),
                    HasSubstr("job.yaml:2: lr: unknown key (it belongs under optim: as optim.lr)")));
  EXPECT_THAT(errors("empty.yaml"), AllOf(HasSubstr("the file is empty"), HasSubstr("model.path: is required"),
                                          HasSubstr("data.train_files: is required")));
  EXPECT_EQ(errors("list_on_top.yaml"), "job.yaml:1: expected a map of keys at the top, got a list");
  EXPECT_THAT(errors("anchor_merge.yaml"),
              AllOf(HasSubstr("defaults: unknown key"), HasSubstr("begins with x-"), Not(HasSubstr("<<"))));
  EXPECT_THAT(errors("unicode.yaml"), AllOf(HasSubstr("run_name: unknown key"), HasSubstr("tags: unknown key")));
  EXPECT_THAT(errors("bom_crlf.yaml"), AllOf(HasSubstr("model.path: is required"), Not(HasSubstr("optim"))));
}

TEST(JobReaderTest, HelperMapsAndMergeKeys) {
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, Load(absl::StrCat("x-adam: &adam {lr: 1e-3, eps: 1e-6}\n", kMinimal,
                                                                 "optim: {<<: *adam, lr: 2e-3}\n")));
  EXPECT_DOUBLE_EQ(spec.optim().lr(), 2e-3);
  EXPECT_DOUBLE_EQ(spec.optim().eps(), 1e-6);
}

TEST(JobReaderTest, FreeFormMapKeepsKeysAndTypes) {
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, Load("model: {path: m, override_config: {größe: 大, n: 12, f: 1e-5, t: "
                                                    "true, no: NO, q: '12', z: null, l: [1, {a: b}]}}\n"
                                                    "data: {train_files: t}\n"));
  const auto& fields = spec.model().override_config().fields();
  EXPECT_EQ(fields.at("größe").string_value(), "大");
  EXPECT_EQ(fields.at("n").number_value(), 12);
  EXPECT_EQ(fields.at("f").number_value(), 1e-5);
  EXPECT_TRUE(fields.at("t").bool_value());
  EXPECT_EQ(fields.at("no").string_value(), "NO");
  EXPECT_EQ(fields.at("q").string_value(), "12");
  EXPECT_TRUE(fields.at("z").has_null_value());
  EXPECT_EQ(fields.at("l").list_value().values(1).struct_value().fields().at("a").string_value(), "b");
  EXPECT_THAT(Errors("model: {path: m, override_config: {n: 9007199254740993}}\ndata: {train_files: t}\n"),
              HasSubstr("model.override_config: 9007199254740993 is too large"));
}

TEST(JobReaderTest, TextKeysKeepTheirText) {
  for (const std::string value : {"on", "NO", "1e5", "007", "1.10", "12:30:45", "0x1F", "true"}) {
    ASSERT_OK_AND_ASSIGN(
        const v1::JobSpec spec,
        Load(absl::StrCat("model: {path: m}\ndata:\n  train_files: t\n  system_prompt: ", value, "\n")));
    EXPECT_EQ(spec.data().system_prompt(), value);
  }
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec unset, Load("name: null\nmodel: {path: m}\ndata: {train_files: t}\n"));
  EXPECT_EQ(unset.name(), "job");
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec quoted, Load("name: 'null'\nmodel: {path: m}\ndata: {train_files: t}\n"));
  EXPECT_EQ(quoted.name(), "null");
}

TEST(JobReaderTest, SameKeyUnderTwoNames) {
  EXPECT_EQ(Errors("model: {path: m}\ndata:\n  train_files: t\n  format: text\n  preset: gsm8k\n"),
            "job.yaml:5: data.preset: is the same key as format on line 4; which one is meant?");
}

TEST(JobReaderTest, RulesAreNotJudgedOnKeysThatWereNotRead) {
  const std::string text = absl::StrCat(kMinimal, "trainer: {n_gpus_per_node: three}\nengine: {dp_size: 3}\n");
  EXPECT_EQ(Errors(text), "job.yaml:3: trainer.n_gpus_per_node: expected a whole number, got \"three\"");
}

TEST(JobReaderTest, RulesAcrossKeysHaveTheLineOfTheKeyToChange) {
  EXPECT_THAT(Errors(absl::StrCat(kMinimal, "trainer:\n  resume_mode: disable\n  save_freq: often\n")),
              HasSubstr("job.yaml:5: trainer.save_freq: expected a number of steps above 0"));
}

TEST(JobReaderTest, SmallIntegersDoNotWrap) {
  EXPECT_THAT(Errors(absl::StrCat(kMinimal, "trainer: {nnodes: 4294967297}\n")),
              HasSubstr("trainer.nnodes: must be at most 2147483647"));
}

// A file cut off anywhere is a job or a list of errors, never a crash (the sanitizer builds look closer).
TEST(JobReaderTest, EveryPrefixOfAJobFileIsJudged) {
  std::ifstream file("configs/pretrain_text.yaml");
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_GT(text.str().size(), 500u);
  for (size_t length = 0; length < text.str().size(); length += 3) {
    const LoadResult result = LoadJob(Options(text.str().substr(0, length)));
    for (const ConfigError& error : result.errors) EXPECT_FALSE(error.message.empty()) << length;
  }
}

TEST(JobReaderTest, ReadsAFileBelowTheWorkingFolder) {
  testing::TempDir dir;
  dir.Write("job.yaml", kMinimal);
  LoadOptions options = Options("");
  options.text.reset();
  options.working_folder = dir.path().string();
  ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, LoadJobSpec(options));
  EXPECT_EQ(spec.model().path(), dir.Join("m"));
  options.file = "other.yaml";
  EXPECT_THAT(LoadJobSpec(options), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other.yaml")));
}

}  // namespace
}  // namespace sluice
