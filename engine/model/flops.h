// Floating-point operations of a training step, for model-FLOPs utilisation.
#pragma once

#include <cstdint>
#include <span>

#include "engine/model/model_config.h"

namespace sluice::engine {

// Forward and backward of one batch: 6 N T + 6 sum(L^2) head_dim heads layers, with N the matrix parameters that
// multiply every token (projections and the head, not the embedding's gather), T = sum(L), L the sequence lengths.
// The backward counts twice the forward; a third of this is a forward alone. As in verl's flops_counter, a causal
// model's attention counts at half of the full square; unlike there, N leaves out the embedding table.
double TrainingFlops(const ModelConfig& config, std::span<const int64_t> sequence_lengths);

// The same for `tokens` tokens in sequences whose squared lengths sum to `sum_of_squared_lengths`.
double TrainingFlops(const ModelConfig& config, double tokens, double sum_of_squared_lengths);

}  // namespace sluice::engine
