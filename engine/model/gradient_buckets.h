// In which pieces the gradients of a model are summed over ranks while its backward goes on.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/parameter_layout.h"

namespace sluice::engine {

// Elements [begin, end) of the flat gradient array, complete once the backward of `after_layer` is done.
struct GradientBucket {
  int64_t after_layer = 0;  // config.layers: before that of any layer; -1: after all of them
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const GradientBucket&, const GradientBucket&) = default;
};

// When the embedding's gradient is summed. The rows that the last backward adds come at its very end, where nothing is
// left to sum beside; so it can be cheaper to sum what was there before (a tied head's part, earlier micro-batches') at
// the beginning, and to exchange those rows afterwards.
enum class EmbeddingSum : uint8_t { kAtTheEnd, kBeforeItsRows };

// kBeforeItsRows where the rows of all ranks are less than the whole gradient. `element_bytes`: of an element of a row.
EmbeddingSum ChooseEmbeddingSum(const ModelConfig& config, int64_t ranks, int64_t token_slots, int64_t element_bytes);

// In the order in which they are complete; together they are the whole array, each element once. Matrices of
// neighbouring layers join to buckets of at least `bucket_bytes` (of fp32), as small ones cost time and large ones are
// ready late. Norm weights and biases, which are complete only at the end, are the last.
std::vector<GradientBucket> PlanGradientBuckets(const ParameterLayout& layout, const ModelConfig& config,
                                                int64_t bucket_bytes, EmbeddingSum embedding);

}  // namespace sluice::engine
