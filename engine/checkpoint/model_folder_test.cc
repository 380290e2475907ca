// Reader and writer of Hugging Face model folders: the trouble cases of tests/golden/checkpoint/k02, shards written by
// transformers, and faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/testing/fault_injection_file_system.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/checkpoint/model_folder_writer.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

using ::nlohmann::json;
using ::sluice::testing::FaultInjectionFileSystem;
using ::sluice::testing::StatusIs;
using ::sluice::testing::Surviving;
using ::sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kCases[] = "tests/golden/checkpoint/k02/";
constexpr char kTransformersShards[] = "tests/golden/checkpoint/transformers_shards";

absl::StatusOr<ModelFolder> OpenCase(const std::string& name) {
  return ModelFolder::Open(PosixFileSystem(), kCases + name);
}

// The shapes that the configuration of the tiny model asks for, in the names of the Llama architecture.
std::map<std::string, std::vector<int64_t>> WantedTensors(const json& config) {
  const int64_t h = config["hidden_size"], m = config["intermediate_size"], v = config["vocab_size"];
  const int64_t kv = config["num_key_value_heads"].get<int64_t>() * config["head_dim"].get<int64_t>();
  std::map<std::string, std::vector<int64_t>> wanted = {{"model.embed_tokens.weight", {v, h}},
                                                        {"model.norm.weight", {h}}};
  if (!config["tie_word_embeddings"]) wanted["lm_head.weight"] = {v, h};
  for (int64_t i = 0; i < config["num_hidden_layers"]; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".";
    for (const char* name : {"self_attn.q_proj", "self_attn.o_proj"}) wanted[p + name + ".weight"] = {h, h};
    for (const char* name : {"self_attn.k_proj", "self_attn.v_proj"}) wanted[p + name + ".weight"] = {kv, h};
    for (const char* name : {"mlp.gate_proj", "mlp.up_proj"}) wanted[p + name + ".weight"] = {m, h};
    wanted[p + "mlp.down_proj.weight"] = {h, m};
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) wanted[p + name + ".weight"] = {h};
  }
  return wanted;
}

// Opens a case as a model does: every tensor of the configuration with its shape. The first error, or the names left
// over.
absl::StatusOr<std::vector<std::string>> LoadCase(const std::string& name) {
  ASSIGN_OR_RETURN(const ModelFolder folder, OpenCase(name));
  std::set<std::string> used;
  for (const auto& [tensor, shape] : WantedTensors(json::parse(folder.config_json()))) {
    RETURN_IF_ERROR(folder.Tensor(tensor, shape));
    used.insert(tensor);
  }
  return folder.NamesNotIn(used);
}

TEST(ModelFolderCasesTest, LoadsOrNamesTheError) {
  const std::map<std::string, std::pair<absl::StatusCode, std::string>> errors = {
      {"untied_without_head", {absl::StatusCode::kNotFound, "holds no tensor lm_head.weight"}},
      {"missing_tensor", {absl::StatusCode::kNotFound, "holds no tensor model.layers.1.mlp.up_proj.weight"}},
      {"wrong_shape",
       {absl::StatusCode::kInvalidArgument,
        "model.layers.0.self_attn.k_proj.weight is [16, 16], config.json needs [8, 16]"}},
      {"vocabulary_too_small",
       {absl::StatusCode::kInvalidArgument, "model.embed_tokens.weight is [30, 16], config.json needs [32, 16]"}},
      {"shards_one_missing", {absl::StatusCode::kNotFound, "model-00002-of-00003.safetensors is missing"}},
      {"index_names_absent_tensor",
       {absl::StatusCode::kInvalidArgument,
        "puts model.layers.0.mlp.extra.weight into model-00001-of-00002.safetensors, which does not hold it"}},
      {"index_path_outside",
       {absl::StatusCode::kInvalidArgument, "the shard of model.norm.weight is \"../untied/model.safetensors\""}},
  };
  absl::StatusOr<std::string> text = PosixFileSystem().ReadFile(std::string(kCases) + "expected.json");
  ASSERT_OK(text);
  const json expected = json::parse(*text);
  ASSERT_EQ(expected["folders"].size(), 15u);
  size_t refused = 0;
  for (const json& item : expected["folders"]) {
    const std::string name = item["folder"];
    SCOPED_TRACE(name);
    const auto error = errors.find(name);
    EXPECT_EQ(item.contains("logits"), error == errors.end());  // a model only where the case wants one
    if (error != errors.end()) {
      EXPECT_THAT(LoadCase(name), StatusIs(error->second.first, HasSubstr(error->second.second)));
      EXPECT_THAT(std::string(LoadCase(name).status().message()), HasSubstr(name));
      ++refused;
    } else {
      EXPECT_OK(LoadCase(name));
    }
  }
  EXPECT_EQ(refused, errors.size());
}

TEST(ModelFolderCasesTest, TellsWhatIsLeftOver) {
  EXPECT_THAT(*LoadCase("untied"), IsEmpty());
  EXPECT_THAT(*LoadCase("extra_tensors"),
              ElementsAre("model.layers.0.self_attn.rotary_emb.inv_freq", "surprise.weight"));
  EXPECT_THAT(*LoadCase("tied_with_other_head"), ElementsAre("lm_head.weight"));  // for the model to decide about
  ASSERT_OK_AND_ASSIGN(const ModelFolder stray, OpenCase("stray_file"));
  EXPECT_THAT(stray.notes(), ElementsAre(HasSubstr("model.safetensors is ignored")));
  ASSERT_OK_AND_ASSIGN(const ModelFolder shards, OpenCase("shards"));
  EXPECT_THAT(shards.notes(), IsEmpty());
  // The stray file holds other values under one of the names.
  EXPECT_TRUE(std::ranges::equal(stray.Tensor("model.embed_tokens.weight")->bytes,
                                 shards.Tensor("model.embed_tokens.weight")->bytes));
}

// Broken folders made here. Each starts from a good one of two shards.
class BrokenFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b"}) {
      ASSERT_OK(WriteSafetensors(files_, std::string("/m/") + name + ".safetensors",
                                 {{{name, DataType::kU8, {1}}, std::as_bytes(std::span("1", 1))}}, {}));
    }
    Write("config.json", "{}");
    Write("model.safetensors.index.json", R"({"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
  }
  BrokenFolderTest() { EXPECT_OK(files_.CreateFolder("/m")); }

  void Write(const std::string& name, const std::string& contents) {
    ASSERT_OK(WriteFileAtomically(files_, "/m/" + name, contents));
  }
  void ExpectError(absl::StatusCode code, const std::string& message) {
    EXPECT_THAT(ModelFolder::Open(files_, "/m"), StatusIs(code, HasSubstr(message)));
    EXPECT_THAT(std::string(ModelFolder::Open(files_, "/m").status().message()), HasSubstr("/m"));
  }

  FaultInjectionFileSystem files_;
};

TEST_F(BrokenFolderTest, TheGoodOneOpens) {
  ASSERT_OK_AND_ASSIGN(const ModelFolder folder, ModelFolder::Open(files_, "/m"));
  EXPECT_THAT(folder.TensorNames(), ElementsAre("a", "b"));
  EXPECT_EQ(folder.config_json(), "{}");
}

TEST_F(BrokenFolderTest, ConfigOrFolderMissing) {
  EXPECT_THAT(ModelFolder::Open(files_, "/none"),
              StatusIs(absl::StatusCode::kNotFound, "/none: there is no such folder"));
  Write("config.json", "{");
  ExpectError(absl::StatusCode::kInvalidArgument, "config.json: not JSON");
  Write("config.json", "[]");
  ExpectError(absl::StatusCode::kInvalidArgument, "config.json: is a JSON array, expected an object");
  ASSERT_OK(files_.RemoveFile("/m/config.json"));
  ExpectError(absl::StatusCode::kNotFound, "has no config.json (is it a Hugging Face model folder?)");
}

TEST_F(BrokenFolderTest, NoWeights) {
  ASSERT_OK(files_.RemoveFile("/m/model.safetensors.index.json"));
  ExpectError(absl::StatusCode::kNotFound,
              "has neither model.safetensors nor model.safetensors.index.json (it holds a.safetensors, b.safetensors)");
}

TEST_F(BrokenFolderTest, Index) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "not JSON"},
      {"{}", "has no object \"weight_map\""},
      {R"({"weight_map":[]})", "has no object \"weight_map\""},
      {R"({"weight_map":{}})", "\"weight_map\" is empty"},
      {R"({"weight_map":{"a":1}})", "the shard of a is not a text"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "expected the name of a file in the same folder"},
      {R"({"weight_map":{"a":".."}})", "expected the name of a file in the same folder"},
      {R"({"weight_map":{"a":"a.safetensors","a":"b.safetensors"}})", "the key \"a\" is given twice"},
      {R"({"weight_map":{"a":"b.safetensors","b":"b.safetensors"}})",
       "puts a into b.safetensors, which does not hold it"},
      {R"({"weight_map":{"a":"b.safetensors","b":"a.safetensors"}})", "which does not hold it (a.safetensors does)"},
  };
  for (const auto& [index, message] : cases) {
    Write("model.safetensors.index.json", index);
    ExpectError(absl::StatusCode::kInvalidArgument, message);
  }
}

TEST_F(BrokenFolderTest, ShardTruncatedOrFlipped) {
  ASSERT_OK_AND_ASSIGN(const std::string good, files_.ReadFile("/m/b.safetensors"));
  Write("b.safetensors", good.substr(0, good.size() - 1));
  ExpectError(absl::StatusCode::kInvalidArgument,
              "b.safetensors: truncated: \"b\" ends at data byte 1, the file has 0");
  Write("b.safetensors", "");
  ExpectError(absl::StatusCode::kInvalidArgument, "b.safetensors: truncated");
}

TEST_F(BrokenFolderTest, TensorsTheIndexDoesNotNameAreIgnoredAndTold) {
  Write("model.safetensors.index.json", R"({"weight_map":{"b":"b.safetensors"}})");
  ASSERT_OK_AND_ASSIGN(const ModelFolder folder, ModelFolder::Open(files_, "/m"));
  EXPECT_FALSE(folder.Contains("a"));
  Write("model.safetensors.index.json", R"({"weight_map":{"b":"b.safetensors"}})");
  const TensorData extra = {{"x", DataType::kU8, {1}}, std::as_bytes(std::span("1", 1))};
  ASSERT_OK(WriteSafetensors(files_, "/m/b.safetensors", {extra, *folder.Tensor("b")}, {}));
  ASSERT_OK_AND_ASSIGN(const ModelFolder with_extra, ModelFolder::Open(files_, "/m"));
  EXPECT_THAT(with_extra.TensorNames(), ElementsAre("b"));
  EXPECT_THAT(with_extra.notes(), ElementsAre(HasSubstr("x of b.safetensors")));
}

// Writing.

struct Model {
  std::vector<TensorSpec> specs;
  TensorSource source;
};

// The tensors of a folder, as a model hands them over.
Model ModelOf(const ModelFolder& folder) {
  Model model;
  for (const std::string& name : folder.TensorNames()) model.specs.push_back(folder.Tensor(name)->spec);
  std::reverse(model.specs.begin(), model.specs.end());  // the order must not matter
  model.source = [&folder](const TensorSpec& spec) -> absl::StatusOr<std::span<const std::byte>> {
    ASSIGN_OR_RETURN(const TensorData tensor, folder.Tensor(spec.name));
    return tensor.bytes;
  };
  return model;
}

TEST(WriteModelFolderTest, WritesTheBytesTransformersWrites) {
  const TempDir temp;
  ASSERT_OK_AND_ASSIGN(const ModelFolder source, ModelFolder::Open(PosixFileSystem(), kTransformersShards));
  const Model model = ModelOf(source);
  ModelFolderOptions options;
  options.max_shard_bytes = 6000;
  options.companions_from = kTransformersShards;
  ASSERT_OK(
      WriteModelFolder(PosixFileSystem(), temp.Join("out"), source.config_json(), model.specs, model.source, options));
  ASSERT_OK_AND_ASSIGN(const std::vector<FolderEntry> want, PosixFileSystem().ListFolder(kTransformersShards));
  ASSERT_OK_AND_ASSIGN(const std::vector<FolderEntry> got, PosixFileSystem().ListFolder(temp.Join("out")));
  ASSERT_EQ(got.size(), want.size());
  ASSERT_EQ(want.size(), 7u);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].name, want[i].name);
    EXPECT_EQ(*PosixFileSystem().ReadFile(JoinPath(temp.Join("out"), got[i].name)),
              *PosixFileSystem().ReadFile(JoinPath(kTransformersShards, want[i].name)))
        << want[i].name;
  }
  EXPECT_EQ(PosixFileSystem().ListFolder(temp.path().string())->size(), 1u);  // no temporary folder left
}

TEST(WriteModelFolderTest, OneFileWhenItFits) {
  const TempDir temp;
  ASSERT_OK_AND_ASSIGN(const ModelFolder source, OpenCase("untied"));
  const Model model = ModelOf(source);
  ASSERT_OK(
      WriteModelFolder(PosixFileSystem(), temp.Join("deep/out/"), source.config_json(), model.specs, model.source, {}));
  ASSERT_OK_AND_ASSIGN(const std::vector<FolderEntry> entries, PosixFileSystem().ListFolder(temp.Join("deep/out")));
  ASSERT_EQ(entries.size(), 2u);
  ASSERT_OK_AND_ASSIGN(const ModelFolder written, ModelFolder::Open(PosixFileSystem(), temp.Join("deep/out")));
  EXPECT_EQ(written.TensorNames(), source.TensorNames());
}

TEST(WriteModelFolderTest, SplitsLikeHuggingFace) {
  const auto split = [](const std::vector<int64_t>& sizes, int64_t limit) {
    std::vector<TensorSpec> specs;
    for (const int64_t size : sizes) specs.push_back({"t", DataType::kU8, {size}});
    return SplitIntoShards(specs, limit);
  };
  using Shards = std::vector<std::vector<size_t>>;
  EXPECT_EQ(split({4, 4, 4}, 12), (Shards{{0, 1, 2}}));
  EXPECT_EQ(split({4, 4, 4}, 11), (Shards{{0, 1}, {2}}));
  EXPECT_EQ(split({4, 20, 4}, 12), (Shards{{1}, {0, 2}}));  // the large one goes ahead of the shard being filled
  EXPECT_EQ(split({20, 30}, 12), (Shards{{0}, {1}}));
  EXPECT_EQ(ShardName(1, 3), "model-00002-of-00003.safetensors");
}

TEST(WriteModelFolderTest, RefusesATakenNameUnlessToldToReplace) {
  FaultInjectionFileSystem files;
  ASSERT_OK_AND_ASSIGN(const ModelFolder source, OpenCase("untied"));
  const Model model = ModelOf(source);
  ASSERT_OK(CreateFolderWithParents(files, "/out"));
  ASSERT_OK(WriteModelFolder(files, "/out", "{}", model.specs, model.source, {}));  // empty: free
  const int64_t before = files.operations();
  EXPECT_THAT(WriteModelFolder(files, "/out", "{}", model.specs, model.source, {}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("/out")));
  EXPECT_LE(files.operations() - before, 2);
  for (const bool exchange : {true, false}) {
    if (!exchange) files.ForbidExchange();
    const std::string config = exchange ? "{\"a\":1}" : "{\"a\":2}";
    ASSERT_OK(WriteModelFolder(files, "/out", config, model.specs, model.source, {.replace = true}));
    EXPECT_EQ(*files.ReadFile("/out/config.json"), config);
    EXPECT_EQ(files.ListFolder("/")->size(), 1u);
  }
}

TEST(WriteModelFolderTest, RefusesBadInput) {
  FaultInjectionFileSystem files;
  const TensorSource none = [](const TensorSpec&) -> absl::StatusOr<std::span<const std::byte>> {
    return absl::InternalError("device lost");
  };
  EXPECT_THAT(WriteModelFolder(files, "/o", "{}", {}, none, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/o: a model without")));
  EXPECT_THAT(WriteModelFolder(files, "/o", "[]", {{"a", DataType::kU8, {1}}}, none, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/o/config.json")));
  EXPECT_THAT(WriteModelFolder(files, "/o", "{}", {{"a", DataType::kU8, {1}}, {"a", DataType::kU8, {1}}}, none, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("given twice")));
  EXPECT_THAT(WriteModelFolder(files, "/o", "{}", {{"a", DataType::kU8, {1}}}, none, {}),
              StatusIs(absl::StatusCode::kInternal, "a: device lost"));
  EXPECT_TRUE(files.ListFolder("/")->empty());
}

// Replaces a folder and stops at each operation in turn: afterwards the name stands for the former or for the new
// model, each whole.
TEST(WriteModelFolderTest, ReplacingSurvivesEveryCrashAndError) {
  ASSERT_OK_AND_ASSIGN(const ModelFolder source, OpenCase("untied"));
  const Model model = ModelOf(source);
  ModelFolderOptions options;
  options.max_shard_bytes = 15000;
  options.replace = true;
  std::vector<std::pair<bool, Surviving>> ways = {
      {true, Surviving::kSynced}, {true, Surviving::kEverything}, {false, Surviving::kEverything}};
  ways.insert(ways.end(), 8, {true, Surviving::kRandom});
  uint64_t seed = 0;
  for (const auto& [crash, surviving] : ways) {
    bool reached = true;
    for (int64_t n = 0; reached; ++n) {
      FaultInjectionFileSystem files;
      ASSERT_OK(WriteModelFolder(files, "/out", R"({"a":"old"})", model.specs, model.source, options));
      crash ? files.CrashAtOperation(n) : files.FailAtOperation(n, absl::ResourceExhaustedError("full"));
      const bool written = WriteModelFolder(files, "/out", R"({"a":"new"})", model.specs, model.source, options).ok();
      reached = files.fault_happened();
      EXPECT_TRUE(reached || (written && n > 30));  // the loop ends with a power loss after a whole writing
      files.Restart(surviving, ++seed);
      ASSERT_OK_AND_ASSIGN(const ModelFolder folder, ModelFolder::Open(files, "/out"));
      EXPECT_EQ(folder.TensorNames().size(), 21u);
      if (written) {
        EXPECT_EQ(folder.config_json(), R"({"a":"new"})");
      }
      // The next try cleans up and succeeds.
      ASSERT_OK(WriteModelFolder(files, "/out", R"({"a":"new"})", model.specs, model.source, options));
      EXPECT_EQ(files.ListFolder("/")->size(), 1u);
    }
  }
}

}  // namespace
}  // namespace sluice::engine
