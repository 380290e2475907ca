// Where each parameter of a model lies in one flat array.
//
// Order: first all matrices (decayed by weight decay), then all norm weights and biases (not decayed), each part in the
// order of the forward pass. Query, key and value rows are adjacent, and gate and up rows are adjacent, so that one
// product serves each; every Hugging Face tensor is still one contiguous slice. Fused groups start at multiples of
// kParameterAlignment elements; the gaps belong to no parameter and stay zero in values, gradients and optimizer state,
// so that norms, all-reduce and AdamW run over the flat array.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/model/model_config.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

inline constexpr int64_t kParameterAlignment = 128;  // elements: 256 bytes in bf16

struct ParameterSpec {
  std::string name;      // as in Hugging Face checkpoints: "model.layers.0.self_attn.q_proj.weight"
  kernels::Shape shape;  // as there: [out, in] for a matrix
  int64_t offset = 0;    // elements from the start of the flat array
  bool decayed = false;  // a matrix
};

// Immutable after construction; thread-safe.
class ParameterLayout {
 public:
  explicit ParameterLayout(const ModelConfig& config);

  const std::vector<ParameterSpec>& parameters() const { return parameters_; }  // ascending offset
  const ParameterSpec* Find(const std::string& name) const;                     // null: no such parameter

  int64_t size() const { return size_; }                        // elements of the flat array, gaps included
  int64_t decayed_size() const { return decayed_size_; }        // elements 0..decayed_size-1 are the decayed ones
  int64_t parameter_count() const { return parameter_count_; }  // without gaps

 private:
  void AddMatrices(const ModelConfig& config);
  void AddNormsAndBiases(const ModelConfig& config);
  void Add(const std::string& name, kernels::Shape shape, bool decayed);
  void Align();

  std::vector<ParameterSpec> parameters_;
  std::unordered_map<std::string, size_t> index_;
  int64_t size_ = 0;
  int64_t decayed_size_ = 0;
  int64_t parameter_count_ = 0;
};

}  // namespace sluice::engine
