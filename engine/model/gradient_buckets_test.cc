#include "engine/model/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace sluice::engine {
namespace {

using ::testing::Each;

ModelConfig Config(bool tied) {
  ModelConfig config;
  config.vocab_size = 100;
  config.hidden_size = 16;
  config.intermediate_size = 32;
  config.layers = 4;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 8;
  config.tie_word_embeddings = tied;
  return config;
}

// Elements of one layer's matrices.
int64_t LayerSize(const ParameterLayout& layout) {
  return layout.Find("model.layers.1.self_attn.q_proj.weight")->offset -
         layout.Find("model.layers.0.self_attn.q_proj.weight")->offset;
}

class GradientBucketsTest : public ::testing::TestWithParam<std::tuple<bool, bool, int64_t, EmbeddingSum>> {};

TEST_P(GradientBucketsTest, EveryElementIsInOneBucketOnceItIsComplete) {
  const auto [tied, value_head, bucket_bytes, embedding] = GetParam();
  ModelConfig config = Config(tied);
  config.value_head = value_head;
  const ParameterLayout layout(config);
  const std::vector<GradientBucket> buckets = PlanGradientBuckets(layout, config, bucket_bytes, embedding);

  // By element; a gap between groups of parameters belongs to nobody, stays zero and may be summed at any time.
  std::vector<int64_t> complete_after(static_cast<size_t>(layout.size()), config.layers);
  for (const ParameterSpec& spec : layout.parameters()) {
    int64_t after = -1;
    int layer = 0;
    if (sscanf(spec.name.c_str(), "model.layers.%d.", &layer) == 1 && spec.decayed) after = layer;
    if (spec.name == "model.embed_tokens.weight" && embedding == EmbeddingSum::kBeforeItsRows) after = config.layers;
    if (spec.name == "lm_head.weight" || spec.name == "score.weight") after = config.layers;
    std::fill_n(complete_after.begin() + spec.offset, spec.shape.elements(), after);
  }
  std::vector<int> times(static_cast<size_t>(layout.size()), 0);
  int64_t before = config.layers;
  for (const GradientBucket& bucket : buckets) {
    EXPECT_LE(bucket.after_layer, before) << "out of order";
    before = bucket.after_layer;
    for (int64_t element = bucket.begin; element < bucket.end; ++element) {
      ++times[static_cast<size_t>(element)];
      ASSERT_GE(complete_after[static_cast<size_t>(element)], bucket.after_layer) << "summed before it is complete";
    }
  }
  EXPECT_THAT(times, Each(1));
}

INSTANTIATE_TEST_SUITE_P(Models, GradientBucketsTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(),
                                            ::testing::Values(int64_t{1}, int64_t{20000}, int64_t{1} << 40),
                                            ::testing::Values(EmbeddingSum::kAtTheEnd, EmbeddingSum::kBeforeItsRows)));

TEST(GradientBucketsTest, LayersJoinToTheSizeThatIsAskedFor) {
  const ModelConfig config = Config(/*tied=*/true);
  const ParameterLayout layout(config);
  const int64_t size = LayerSize(layout);
  const int64_t first = layout.Find("model.layers.0.self_attn.q_proj.weight")->offset;
  const auto rest = [&](std::vector<GradientBucket> layers) {
    layers.push_back({-1, 0, first});
    layers.push_back({-1, layout.decayed_size(), layout.size()});
    return layers;
  };
  EXPECT_EQ(PlanGradientBuckets(layout, config, size * 4, EmbeddingSum::kAtTheEnd),
            rest({{3, first + 3 * size, first + 4 * size},
                  {2, first + 2 * size, first + 3 * size},
                  {1, first + 1 * size, first + 2 * size},
                  {0, first, first + size}}));
  EXPECT_EQ(PlanGradientBuckets(layout, config, size * 4 * 3, EmbeddingSum::kAtTheEnd),
            rest({{1, first + size, first + 4 * size}, {0, first, first + size}}));
}

TEST(GradientBucketsTest, RowsAreExchangedWhereTheyAreLess) {
  ModelConfig config = Config(/*tied=*/true);
  config.vocab_size = 151936;
  EXPECT_EQ(ChooseEmbeddingSum(config, 1, 16384, 2), EmbeddingSum::kAtTheEnd);
  EXPECT_EQ(ChooseEmbeddingSum(config, 2, 16384, 2), EmbeddingSum::kBeforeItsRows);
  EXPECT_EQ(ChooseEmbeddingSum(config, 18, 16384, 2), EmbeddingSum::kBeforeItsRows);
  EXPECT_EQ(ChooseEmbeddingSum(config, 19, 16384, 2), EmbeddingSum::kAtTheEnd);
  EXPECT_EQ(ChooseEmbeddingSum(config, 10, 16384, 4), EmbeddingSum::kAtTheEnd);
}

TEST(GradientBucketsTest, AHeadOfItsOwnComesFirst) {
  const ModelConfig config = Config(/*tied=*/false);
  const ParameterLayout layout(config);
  const int64_t head = layout.Find("lm_head.weight")->offset;
  EXPECT_EQ(PlanGradientBuckets(layout, config, 1, EmbeddingSum::kBeforeItsRows).front(),
            (GradientBucket{config.layers, head, layout.decayed_size()}));
}

}  // namespace
}  // namespace sluice::engine
