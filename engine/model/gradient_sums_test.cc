// Gradients summed over ranks inside of the backward are those of one rank that has all micro-batches.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/batch_plan.h"
#include "engine/data/micro_batch.h"
#include "engine/model/causal_lm.h"

namespace sluice::engine {
namespace {

constexpr int64_t kSlots = 48;
constexpr uint64_t kSeed = 3;

struct Case {
  const char* name;
  int64_t vocab_size;  // at 48 slots of two ranks: more than 96 ids make the exchange of rows the cheaper way
  bool tied;
  EmbeddingSum expected;
  std::vector<int> micro_batches;  // of each rank
};

ModelConfig Config(const Case& test) {
  ModelConfig config;
  config.vocab_size = test.vocab_size;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.tie_word_embeddings = test.tied;
  config.initializer_range = 0.05f;
  config.windows.assign(3, 0);
  return config;
}

MicroBatch Batch(const ModelConfig& config, int number) {
  std::mt19937 random(static_cast<uint32_t>(number));
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<uint8_t>> masks;
  std::vector<TokenSpan> spans;
  for (const int length : {11 + number, 20}) {  // not of one size on all ranks
    auto& row = ids.emplace_back();
    // Few different ids, so that ranks add to the same rows.
    for (int i = 0; i < length; ++i) row.push_back(static_cast<int32_t>(random() % 9 * 7 % config.vocab_size));
    masks.emplace_back(row.size(), uint8_t{1});
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    spans.push_back({ids[i].data(), masks[i].data(), static_cast<int64_t>(ids[i].size()), static_cast<int64_t>(i)});
  }
  return PackMicroBatch(spans, kSlots);
}

class GradientSumsTest : public ::testing::TestWithParam<Case> {};

TEST_P(GradientSumsTest, EqualOneRankWithAllMicroBatches) {
  const Case& test = GetParam();
  const ModelConfig config = Config(test);
  const auto ranks = static_cast<int>(test.micro_batches.size());
  EXPECT_EQ(ChooseEmbeddingSum(config, ranks, kSlots, 4), test.expected);

  int batches = 0;
  std::vector<std::vector<MicroBatch>> of_rank;
  for (const int count : test.micro_batches) {
    auto& own = of_rank.emplace_back();
    for (int i = 0; i < count; ++i) own.push_back(Batch(config, batches++));
  }
  ASSERT_OK_AND_ASSIGN(const auto expected, Parameters::CreateRandom(config, {}, kSeed));
  ASSERT_OK_AND_ASSIGN(const auto alone, CausalLm::Create(expected.get(), {.token_slots = kSlots}));
  GradientMode mode = GradientMode::kOverwrite;
  for (const auto& own : of_rank) {
    for (const MicroBatch& batch : own) {
      ASSERT_OK(alone->ForwardBackward(batch, 0.01, mode));
      mode = GradientMode::kAccumulate;
    }
  }

  testing::TempDir dir;
  const std::string rendezvous = absl::StrCat("file:", dir.Join("rendezvous"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ASSERT_OK_AND_ASSIGN(
          const auto communicator,
          Communicator::Create(
              {.rank = rank, .world_size = ranks, .rendezvous = rendezvous, .timeout = absl::Seconds(20)}));
      ASSERT_OK_AND_ASSIGN(const auto parameters, Parameters::CreateRandom(config, {}, kSeed));
      ASSERT_OK_AND_ASSIGN(
          const auto model,
          CausalLm::Create(parameters.get(), {.token_slots = kSlots, .ranks = ranks, .bucket_bytes = 20000}));
      const auto& own = of_rank[static_cast<size_t>(rank)];
      for (int step = 0; step < 2; ++step) {  // the second step starts from the first one's gradients
        for (const MicroBatch& batch : own) {
          const GradientMode use = &batch == &own.front() ? GradientMode::kOverwrite : GradientMode::kAccumulate;
          ASSERT_OK(model->ForwardBackward(batch, 0.01, {use, &batch == &own.back() ? communicator.get() : nullptr}));
        }
        if (own.empty()) {
          ASSERT_OK(parameters->ZeroGradients());
          ASSERT_OK(model->SumGradients(*communicator));
        }
      }
      const float* actual = parameters->gradients().as<float>();
      const float* wanted = expected->gradients().as<float>();
      double difference = 0, largest = 0;
      for (int64_t i = 0; i < expected->layout().size(); ++i) {
        difference = std::max<double>(difference, std::abs(actual[i] - wanted[i]));
        largest = std::max<double>(largest, std::abs(wanted[i]));
      }
      EXPECT_GT(largest, 1e-3);
      EXPECT_LT(difference, 1e-6 * largest) << "rank " << rank;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, GradientSumsTest,
    ::testing::Values(Case{"TiedRowsExchanged", 120, true, EmbeddingSum::kBeforeItsRows, {2, 1}},
                      Case{"UntiedRowsExchanged", 120, false, EmbeddingSum::kBeforeItsRows, {1, 3}},
                      Case{"RowsExchangedWithARankThatHasNone", 120, true, EmbeddingSum::kBeforeItsRows, {2, 0}},
                      Case{"Tied", 64, true, EmbeddingSum::kAtTheEnd, {1, 2}},
                      Case{"ThreeRanks", 90, true, EmbeddingSum::kAtTheEnd, {1, 0, 2}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::engine
