// A model's parameters as its layers use them: views into one flat array (values, or gradients of the same layout).
#pragma once

#include <vector>

#include "engine/model/model_config.h"
#include "engine/model/parameter_layout.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

// H = hidden size, I = intermediate size, Q = query size, KV = key/value size, D = head size. Views that the
// architecture does not have are empty.
struct LayerWeights {
  kernels::TensorView input_norm;           // [H]
  kernels::TensorView qkv;                  // [Q + 2 KV, H]: query, key, value rows
  kernels::TensorView qkv_bias;             // [Q + 2 KV]
  kernels::TensorView q_norm;               // [D]
  kernels::TensorView k_norm;               // [D]
  kernels::TensorView output;               // [H, Q]
  kernels::TensorView output_bias;          // [H]
  kernels::TensorView post_attention_norm;  // [H]
  kernels::TensorView gate_up;              // [2 I, H]: gate rows, then up rows
  kernels::TensorView gate_up_bias;         // [2 I]
  kernels::TensorView down;                 // [H, I]
  kernels::TensorView down_bias;            // [H]
};

struct ModelWeights {
  kernels::TensorView embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  kernels::TensorView final_norm;  // [H]
  kernels::TensorView head;        // [V, H], the embedding itself where they are tied; or the value head, [1, H]
};

// REQUIRES: flat is dense, [layout.size()], and layout is the layout of config.
ModelWeights CarveWeights(const ModelConfig& config, const ParameterLayout& layout, kernels::TensorView flat);

}  // namespace sluice::engine
