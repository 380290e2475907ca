// Rotary frequencies of a model: what the RoPE kernel multiplies positions with.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model_config.h"

namespace sluice::engine {

// [head_dim / 2] fp32: theta^(-2i / head_dim), then scaled.
//   linear:  divided by `factor` (Chen et al. 2023, position interpolation)
//   llama3:  wavelengths longer than original_max_position_embeddings / low_freq_factor are divided by `factor`, those
//            shorter than original_max_position_embeddings / high_freq_factor are kept, between them interpolated
//            linearly in 1 / wavelength (Llama 3.1's published reference)
// In fp32 throughout, in the order of `transformers`: the rounding is part of the model.
std::vector<float> RotaryInverseFrequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace sluice::engine
