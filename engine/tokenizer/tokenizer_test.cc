#include "engine/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/tokenizer/testing/golden.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

using nlohmann::json;
using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::AllOf;
using testing::GoldenPath;
using ::testing::HasSubstr;
using testing::LoadGolden;
using testing::LoadJson;
using testing::ReadJson;
using testing::ReadLines;
using Ids = std::vector<int32_t>;

// A field case file: texts with ids, under these keys, and decoded texts where they differ from the text.
struct CaseFile {
  const char* tokenizer;
  const char* cases;
  const char* ids_key;
  const char* decoded_key;
  bool special;
};

void PrintTo(const CaseFile& file, std::ostream* out) { *out << file.cases << " with " << file.tokenizer; }

class FieldCaseTest : public ::testing::TestWithParam<CaseFile> {};

TEST_P(FieldCaseTest, IdsAndText) {
  const CaseFile& file = GetParam();
  const auto tokenizer = LoadGolden(file.tokenizer);
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<json> rows = ReadLines(GoldenPath(file.cases));
  ASSERT_FALSE(rows.empty());
  for (const json& row : rows) {
    const auto text = row.at("text").get<std::string>();
    SCOPED_TRACE(row.dump());
    const Ids ids = tokenizer->Encode(text, {.add_special_tokens = file.special});
    EXPECT_EQ(ids, row.at(file.ids_key).get<Ids>());
    EXPECT_EQ(tokenizer->Decode(ids), row.value(file.decoded_key, text));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, FieldCaseTest,
                         ::testing::Values(CaseFile{"llama3_style", "T01.jsonl", "ids", "decoded", false},
                                           CaseFile{"llama3_style", "T01_with_special.jsonl", "ids", "decoded", true},
                                           CaseFile{"qwen2_style", "T02.jsonl", "ids", "decoded", false},
                                           CaseFile{"added_flags", "T03.jsonl", "ids", "decoded", false},
                                           CaseFile{"sp_bytefallback", "T04.jsonl", "ids_prepend", "decoded_prepend",
                                                    false},
                                           CaseFile{"sp_metaspace_first", "T04.jsonl", "ids_metaspace_first",
                                                    "decoded_metaspace_first", false}));

TEST(FieldCaseTest, DecodesByteRuns) {
  const auto tokenizer = LoadGolden("sp_bytefallback");
  for (const json& row : ReadLines(GoldenPath("T04_decode.jsonl"))) {
    SCOPED_TRACE(row.dump());
    const Ids ids = row.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer->Decode(ids), row.at("decoded").get<std::string>());
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(tokenizer->IdToToken(ids[i]), row.at("tokens")[i].get<std::string>());
  }
}

// What is shown joins to what Decode gives, in whole characters.
void ExpectStream(const Tokenizer& tokenizer, const Ids& prompt, const Ids& ids, DecodeOptions options,
                  const std::string& shown) {
  IncrementalDecoder decoder(tokenizer, options, prompt);
  std::string joined;
  for (const int32_t id : ids) {
    const std::string part = decoder.Push(id);
    EXPECT_EQ(ValidUtf8Prefix(part), part.size()) << "a part of a character was shown";
    joined += part;
  }
  EXPECT_EQ(joined + decoder.Flush(), shown);
}

TEST(IncrementalDecoderTest, FieldCases) {
  const json document = ReadJson(GoldenPath("R02.json"));
  std::map<std::string, std::unique_ptr<const Tokenizer>> tokenizers;
  for (const json& row : document.at("cases")) {
    SCOPED_TRACE(row.dump());
    auto& tokenizer = tokenizers[row.at("tokenizer")];
    if (tokenizer == nullptr) tokenizer = LoadGolden(row.at("tokenizer"));
    const DecodeOptions options{.skip_special_tokens = row.at("skip_special_tokens")};
    const Ids ids = row.at("ids").get<Ids>();
    const Ids prompt = row.value("prompt_ids", Ids{});
    ExpectStream(*tokenizer, prompt, ids, options,
                 row.at(row.contains("shown") ? "shown" : "full_decode").get<std::string>());
    Ids all = prompt;
    all.insert(all.end(), ids.begin(), ids.end());
    EXPECT_EQ(tokenizer->Decode(all, options), row.at("full_decode").get<std::string>());
    if (row.contains("prompt_decode")) {
      EXPECT_EQ(tokenizer->Decode(prompt, options), row["prompt_decode"].get<std::string>());
    }
  }
}

TEST(IncrementalDecoderTest, ShowsAByteLevelCharacterAsSoonAsItIsWhole) {
  const auto tokenizer = LoadGolden("qwen2_style");
  IncrementalDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.Push(287), "");  // F0 9F
  EXPECT_EQ(decoder.Push(239), "");
  EXPECT_EQ(decoder.Push(235), "\U0001f44d");
}

TEST(IncrementalDecoderTest, RandomIds) {
  std::mt19937 random(7);
  for (const char* name : {"qwen2_style", "sp_bytefallback", "sp_metaspace_first", "added_flags"}) {
    const auto tokenizer = LoadGolden(name);
    for (int round = 0; round < 300; ++round) {
      Ids ids(random() % 12);
      // Negative ids and ids past the end are no tokens.
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % (tokenizer->vocab_size() + 8)) - 4;
      const DecodeOptions options{.skip_special_tokens = round % 2 == 0};
      SCOPED_TRACE(::testing::PrintToString(ids));
      const std::string whole = tokenizer->Decode(ids, options);
      EXPECT_EQ(ValidUtf8Prefix(whole), whole.size());
      ExpectStream(*tokenizer, {}, ids, options, whole);
    }
  }
}

// The text of a golden case: "text", or the bytes "latin1", one character each.
std::string TextOf(const json& golden) {
  if (golden.contains("text")) return golden["text"];
  const auto latin1 = golden.at("latin1").get<std::string>();
  std::string bytes;
  for (size_t at = 0; at < latin1.size();) {
    const DecodedChar c = DecodeChar(latin1, at);
    bytes.push_back(static_cast<char>(c.code_point));
    at += c.length;
  }
  return bytes;
}

TEST(TokenizerTest, ComponentsEqualTheLibrarys) {
  const std::vector<json> rows = ReadLines(GoldenPath("components.jsonl"));
  ASSERT_GT(rows.size(), 50u);
  for (size_t line = 1; line < rows.size(); ++line) {
    const json& row = rows[line];
    SCOPED_TRACE("components.jsonl:" + std::to_string(line + 1) + " " + row["base"].dump() + " " +
                 row["change"].dump());
    json document = ReadJson(GoldenPath(row["base"].get<std::string>() + ".tokenizer.json"));
    for (const auto& [key, value] : row["change"].items()) {
      if (key == "model") {
        document[key].update(value);
      } else {
        document[key] = value;
      }
    }
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(document));
    for (const json& c : row["cases"]) {
      const std::string text = TextOf(c);
      SCOPED_TRACE(c.dump());
      const Encoding encoding = tokenizer->EncodeWithOffsets(text);
      EXPECT_EQ(encoding.ids, c["ids"].get<Ids>());
      EXPECT_EQ(tokenizer->Encode(text), encoding.ids);
      EXPECT_EQ(tokenizer->Encode(text, {.add_special_tokens = true}), c.value("ids_with_special", encoding.ids));
      const auto decoded = c["decoded"].get<std::string>();
      EXPECT_EQ(tokenizer->Decode(encoding.ids), decoded);
      EXPECT_EQ(tokenizer->Decode(encoding.ids, {.skip_special_tokens = true}),
                c.value("decoded_without_special", decoded));
      ExpectStream(*tokenizer, {}, encoding.ids, {}, decoded);
      ASSERT_EQ(encoding.ranges.size(), encoding.ids.size());
      for (size_t i = 0; c.contains("offsets") && i < encoding.ranges.size(); ++i) {
        const TextRange want{c["offsets"][2 * i], c["offsets"][2 * i + 1]};
        EXPECT_EQ(encoding.ranges[i], want) << "of token " << i;
      }
    }
  }
}

TEST(TokenizerTest, RangesCoverWhatNormalisationComposed) {
  const auto tokenizer = LoadGolden("qwen2_style");
  // "xe◌́y": NFC makes é of bytes 1 to 4; its two bytes are tokens of their own or one token.
  const Encoding encoding = tokenizer->EncodeWithOffsets("xe\xCC\x81y");
  ASSERT_GE(encoding.ids.size(), 3u);
  EXPECT_EQ(encoding.ranges.front(), (TextRange{0, 1}));
  EXPECT_EQ(encoding.ranges[1], (TextRange{1, 4}));
  EXPECT_EQ(encoding.ranges.back(), (TextRange{4, 5}));
}

TEST(TokenizerTest, RangesOfBytesThatAreNotUtf8AreTheirOwn) {
  const auto tokenizer = LoadGolden("qwen2_style");
  // F0 9F is one maximal subpart, FF another; each reads as U+FFFD, which is three bytes and here three tokens.
  const Encoding encoding = tokenizer->EncodeWithOffsets(
      "a\xF0\x9F\xFF"
      "b");
  EXPECT_EQ(encoding.ids, tokenizer->Encode("a\xEF\xBF\xBD\xEF\xBF\xBD"
                                            "b"));
  for (const TextRange& range : encoding.ranges) {
    EXPECT_THAT(range,
                ::testing::AnyOf(TextRange{0, 1}, TextRange{1, 3}, TextRange{1, 4}, TextRange{3, 4}, TextRange{4, 5}));
  }
  EXPECT_EQ(encoding.ranges.back(), (TextRange{4, 5}));
}

TEST(TokenizerTest, SpecialTokensHaveEmptyRanges) {
  const auto tokenizer = LoadGolden("llama3_style");
  const Encoding encoding = tokenizer->EncodeWithOffsets("hi", {.add_special_tokens = true});
  EXPECT_EQ(encoding.ids.front(), 685);
  EXPECT_EQ(encoding.ranges.front(), (TextRange{0, 0}));
  EXPECT_EQ(encoding.ranges.back().end, 2);
}

TEST(TokenizerTest, LooksUpTokens) {
  const auto tokenizer = LoadGolden("qwen2_style");
  EXPECT_EQ(tokenizer->vocab_size(), 647);
  EXPECT_EQ(tokenizer->TokenToId("<|im_end|>"), 642);
  EXPECT_EQ(tokenizer->IdToToken(642), "<|im_end|>");
  EXPECT_TRUE(tokenizer->IsSpecial(642));
  EXPECT_FALSE(tokenizer->IsSpecial(643));  // <think> is added, but not special
  EXPECT_FALSE(tokenizer->IsSpecial(64));
  EXPECT_EQ(tokenizer->IdToToken(220), "\u0120");
  EXPECT_EQ(tokenizer->TokenToId("\u0120"), 220);
  EXPECT_EQ(tokenizer->TokenToId("no such token"), std::nullopt);
  for (const int32_t id : {-1, 647, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->IdToToken(id), std::nullopt);
    EXPECT_FALSE(tokenizer->IsSpecial(id));
  }
}

// The definition of BPE, word for word: join the leftmost pair of the lowest rank until there is none.
Ids PlainBpe(const json& model, const std::string& word) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const json& merge : model["merges"]) ranks.emplace(std::pair(merge[0], merge[1]), ranks.size());
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    size_t best = parts.size();
    size_t best_rank = ranks.size();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = ranks.find({parts[i], parts[i + 1]});
      if (it != ranks.end() && it->second < best_rank) std::tie(best, best_rank) = std::pair(i, it->second);
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(model["vocab"][part]);
  return ids;
}

TEST(TokenizerTest, WordsOfEveryLengthFollowTheDefinition) {
  const json document = ReadJson(GoldenPath("qwen2_style.tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(document));
  std::mt19937 random(3);
  for (const size_t length : {1, 2, 3, 7, 20, 26, 27, 47, 48, 49, 50, 64, 200, 700}) {
    for (int round = 0; round < 4; ++round) {
      std::string word;
      // Frequent letters make many merges overlap.
      for (size_t i = 0; i < length; ++i) word += "etaoinshrtheing"[random() % 15];
      EXPECT_EQ(tokenizer->Encode(word), PlainBpe(document["model"], word)) << word;
      EXPECT_EQ(tokenizer->Encode(word), PlainBpe(document["model"], word)) << word << " (cached)";
    }
  }
}

TEST(TokenizerTest, HugeWordsTakeNoQuadraticTime) {
  const auto tokenizer = LoadGolden("qwen2_style");
  const std::string word(2'000'000, 'a');  // with a quadratic algorithm the test would hit its time limit
  const Ids ids = tokenizer->Encode(word);
  EXPECT_EQ(tokenizer->Decode(ids), word);
  const std::string spaces(200'000, ' ');
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(spaces)), spaces);
}

TEST(TokenizerTest, ThreadsShareIt) {
  const auto llama = LoadGolden("llama3_style");
  const auto qwen = LoadGolden("qwen2_style");
  std::vector<std::string> texts;
  for (const json& row : ReadLines(GoldenPath("T01.jsonl"))) texts.push_back(row.at("text"));
  std::vector<std::pair<Ids, Ids>> want;
  for (const std::string& text : texts) want.emplace_back(llama->Encode(text), qwen->Encode(text));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < texts.size(); ++i) {
        wrong[t] += llama->Encode(texts[i]) != want[i].first || qwen->EncodeWithOffsets(texts[i]).ids != want[i].second;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

}  // namespace
}  // namespace sluice::engine
