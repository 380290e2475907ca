// What Tokenizer::Load refuses, and what it says then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tokenizer/testing/golden.h"
#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine {
namespace {

using nlohmann::json;
using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::AllOf;
using testing::GoldenPath;
using ::testing::HasSubstr;
using testing::LoadJson;
using testing::ReadJson;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A change to qwen2_style.tokenizer.json, as a JSON merge of pointers and values, and what the message must hold.
struct BadFile {
  const char* pointer;
  const char* value;
  const char* message;
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.pointer << " = " << file.value; }

class BadFileTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, NamesThePlace) {
  const BadFile& file = GetParam();
  json document = ReadJson(GoldenPath("qwen2_style.tokenizer.json"));
  document[json::json_pointer(file.pointer)] = json::parse(file.value);
  EXPECT_THAT(LoadJson(document), StatusIs(kInvalid, HasSubstr(file.message)));
}

INSTANTIATE_TEST_SUITE_P(
    Changes, BadFileTest,
    ::testing::Values(
        BadFile{"/extra", "1", "extra: not supported: unknown key"},
        BadFile{"/version", R"("2.0")", "version: not supported"}, BadFile{"/model", "null", "model: missing"},
        BadFile{"/model/type", R"("Unigram")", R"(model.type: not supported: "Unigram" (expected BPE))"},
        BadFile{"/model/dropout", "0.1", "model.dropout: not supported"},
        BadFile{"/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix: not supported"},
        BadFile{"/model/continuing_subword_prefix", R"("##")", "model.continuing_subword_prefix: not supported"},
        BadFile{"/model/vocab", "[]", "model.vocab: expected an object"},
        BadFile{"/model/vocab/h", "-1", R"(model.vocab["h"]: expected a whole number)"},
        BadFile{"/model/vocab/h", "1.5", R"(model.vocab["h"]: expected a whole number)"},
        BadFile{"/model/vocab/h", R"("7")", R"(model.vocab["h"]: expected a whole number)"},
        BadFile{"/model/vocab/h", "4294967297", R"(model.vocab["h"]: expected a whole number)"},
        BadFile{"/model/vocab/h", "2000000000", R"(model.vocab["h"]: id 2000000000 is above)"},
        BadFile{"/model/vocab/h", "0", "have the same id 0"},
        BadFile{"/model/merges", "{}", "model.merges: expected a list"},
        BadFile{"/model/merges/0", R"(["zz", "e"])", R"(merge 0 ("zz" + "e"): "zz" is not in model.vocab)"},
        BadFile{"/model/merges/0", R"(["q", "z"])", R"(merge 0 ("q" + "z"): "qz" is not in model.vocab)"},
        BadFile{"/model/merges/3", R"("a b c")", "model.merges[3]: expected two pieces"},
        BadFile{"/model/merges/3", R"("ab")", "model.merges[3]: expected two pieces"},
        BadFile{"/model/merges/3", R"(["a"])", "model.merges[3]: expected"},
        BadFile{"/added_tokens/1/id", "640", "added_tokens[1].id: 640, but"},
        BadFile{"/added_tokens/1/id", "-3", "added_tokens[1].id: expected a whole number"},
        BadFile{"/added_tokens/1/id", "700", "added_tokens[1].id: 700, but"},
        BadFile{"/added_tokens/1/content", R"("<|endoftext|>")",
                "added_tokens[1].content: \"<|endoftext|>\" is given twice"},
        BadFile{"/added_tokens/1/content", R"("")", "added_tokens[1].content: an empty token"},
        BadFile{"/added_tokens/1/content", R"("h")", "has this id in model.vocab"},
        BadFile{"/added_tokens/1/lstrip", "0", "added_tokens[1].lstrip: expected true or false"},
        BadFile{"/normalizer", R"({"type": "BertNormalizer"})", "normalizer.type: not supported"},
        BadFile{"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})",
                "normalizer.normalizers[1].type: not supported"},
        BadFile{"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "(("}, "content": ""})",
                "normalizer.pattern.Regex: not a pattern"},
        BadFile{"/normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})",
                "normalizer.pattern.String: an empty pattern"},
        BadFile{"/pre_tokenizer/pretokenizers/0/pattern", R"({"Regex": "[a&&b]"})",
                "pre_tokenizer.pretokenizers[0].pattern.Regex: not supported"},
        BadFile{"/pre_tokenizer/pretokenizers/0/behavior", R"("Sideways")",
                "pre_tokenizer.pretokenizers[0].behavior: not supported"},
        BadFile{"/pre_tokenizer/pretokenizers/0/surprise", "1",
                "pre_tokenizer.pretokenizers[0].surprise: not supported"},
        BadFile{"/pre_tokenizer/pretokenizers/2", R"({"type": "Digits", "individual_digits": true})",
                "pre_tokenizer.pretokenizers[2]: not supported: a step after ByteLevel"},
        BadFile{"/pre_tokenizer", R"({"type": "BertPreTokenizer"})", "pre_tokenizer.type: not supported"},
        BadFile{"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false})",
                "pre_tokenizer.add_prefix_space: false does not go with"},
        BadFile{"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "__"})",
                "pre_tokenizer.replacement: expected one character"},
        BadFile{"/decoder", R"({"type": "CTC"})", "decoder.type: not supported"},
        BadFile{"/decoder", R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})",
                "decoder.content: expected one character"},
        BadFile{"/post_processor", R"({"type": "BertProcessing"})", "post_processor.type: not supported"},
        BadFile{"/post_processor",
                R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {}})",
                "post_processor.single[0].SpecialToken.id: <s> is not in post_processor.special_tokens"},
        BadFile{"/post_processor", R"({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}})",
                "post_processor.single: not supported"}));

TEST(TokenizerLoadTest, MissingFile) {
  EXPECT_THAT(Tokenizer::Load("no/such/tokenizer.json"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/such/tokenizer.json: no such file")));
}

TEST(TokenizerLoadTest, Folder) {
  const TempDir folder;
  EXPECT_THAT(Tokenizer::Load(folder.path()), StatusIs(kInvalid, HasSubstr("is a folder")));
}

TEST(TokenizerLoadTest, NotJson) {
  const TempDir folder;
  EXPECT_THAT(Tokenizer::Load(folder.Write("tokenizer.json", "{\"version\": nonsense}")),
              StatusIs(kInvalid, AllOf(HasSubstr("tokenizer.json: not valid JSON at byte 14"), HasSubstr("of 21"))));
  EXPECT_THAT(Tokenizer::Load(folder.Write("list.json", "[]")), StatusIs(kInvalid, HasSubstr("expected an object")));
  EXPECT_THAT(Tokenizer::Load(folder.Write("empty.json", "")), StatusIs(kInvalid, HasSubstr("not valid JSON")));
  EXPECT_THAT(Tokenizer::Load(folder.Write("bad.json", "{\"version\": \"\xFF\"}")),
              StatusIs(kInvalid, HasSubstr("not valid JSON")));
}

TEST(TokenizerLoadTest, TruncatedFile) {
  const TempDir folder;
  const std::string whole = ReadJson(GoldenPath("qwen2_style.tokenizer.json")).dump();
  for (const size_t size : {whole.size() - 1, whole.size() / 2}) {
    EXPECT_THAT(Tokenizer::Load(folder.Write("tokenizer.json", whole.substr(0, size))),
                StatusIs(kInvalid, HasSubstr("the file ends too early")));
  }
}

TEST(TokenizerLoadTest, UnknownTokenOutsideTheVocabulary) {
  json document = ReadJson(GoldenPath("sp_bytefallback.tokenizer.json"));
  document["model"]["unk_token"] = "<nope>";
  EXPECT_THAT(LoadJson(document), StatusIs(kInvalid, HasSubstr("model.unk_token: \"<nope>\" is not in model.vocab")));
}

TEST(TokenizerLoadTest, BothSpellingsOfMergesAndOldHeaders) {
  json document = ReadJson(GoldenPath("qwen2_style.tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const auto pairs, LoadJson(document));
  json lines = json::array({"#version: 0.2"});
  for (const json& merge : document["model"]["merges"]) {
    lines.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  document["model"]["merges"] = lines;
  document["model"]["continuing_subword_prefix"] = "";
  document["model"]["end_of_word_suffix"] = "";
  document["model"]["dropout"] = 0.0;
  document["truncation"] =
      json::parse(R"({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0})");
  ASSERT_OK_AND_ASSIGN(const auto spelled, LoadJson(document));
  EXPECT_EQ(spelled->Encode("the weather there"), pairs->Encode("the weather there"));
}

}  // namespace
}  // namespace sluice::engine
