#include "engine/model/gradient_buckets.h"

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

// Where the matrices of a layer begin; those of the layer before end there.
int64_t LayerBegin(const ParameterLayout& layout, int64_t layer) {
  return layout.Find(absl::StrCat("model.layers.", layer, ".self_attn.q_proj.weight"))->offset;
}

// Where the matrices of the layers end: at a head of its own, or at the first parameter that is no matrix.
int64_t LayersEnd(const ParameterLayout& layout) {
  for (const char* head : {"lm_head.weight", "score.weight"}) {
    if (const ParameterSpec* spec = layout.Find(head)) return spec->offset;
  }
  return layout.decayed_size();
}

}  // namespace

EmbeddingSum ChooseEmbeddingSum(const ModelConfig& config, int64_t ranks, int64_t token_slots, int64_t element_bytes) {
  const int64_t gradient_bytes = config.vocab_size * static_cast<int64_t>(sizeof(float));  // of each column
  return ranks > 1 && ranks * token_slots * element_bytes < gradient_bytes ? EmbeddingSum::kBeforeItsRows
                                                                           : EmbeddingSum::kAtTheEnd;
}

std::vector<GradientBucket> PlanGradientBuckets(const ParameterLayout& layout, const ModelConfig& config,
                                                int64_t bucket_bytes, EmbeddingSum embedding) {
  std::vector<GradientBucket> buckets;
  int64_t end = LayersEnd(layout);
  if (end < layout.decayed_size()) buckets.push_back({config.layers, end, layout.decayed_size()});
  const int64_t layers_begin = LayerBegin(layout, 0);
  if (embedding == EmbeddingSum::kBeforeItsRows) buckets.push_back({config.layers, 0, layers_begin});
  for (int64_t layer = config.layers - 1; layer >= 0; --layer) {
    const int64_t begin = LayerBegin(layout, layer);
    if ((end - begin) * static_cast<int64_t>(sizeof(float)) < bucket_bytes && layer > 0) continue;
    buckets.push_back({layer, begin, end});
    end = begin;
  }
  if (embedding == EmbeddingSum::kAtTheEnd) buckets.push_back({-1, 0, layers_begin});
  if (layout.decayed_size() < layout.size()) buckets.push_back({-1, layout.decayed_size(), layout.size()});
  return buckets;
}

}  // namespace sluice::engine
