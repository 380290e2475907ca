#include "engine/model/rotary.h"

#include <cmath>
#include <numbers>

namespace sluice::engine {
namespace {

float Llama3Scaled(float frequency, const RopeConfig& rope) {
  const float factor = static_cast<float>(rope.factor);
  const float context = static_cast<float>(rope.original_max_position_embeddings);
  const float longest =
      static_cast<float>(static_cast<double>(rope.original_max_position_embeddings) / rope.low_freq_factor);
  const float shortest =
      static_cast<float>(static_cast<double>(rope.original_max_position_embeddings) / rope.high_freq_factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > longest) return frequency / factor;
  if (wavelength < shortest) return frequency;
  const float smooth = (context / wavelength - static_cast<float>(rope.low_freq_factor)) /
                       static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> RotaryInverseFrequencies(const RopeConfig& rope, int64_t head_dim) {
  std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    float frequency = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
    if (rope.scaling == RopeConfig::Scaling::kLinear) frequency /= static_cast<float>(rope.factor);
    if (rope.scaling == RopeConfig::Scaling::kLlama3) frequency = Llama3Scaled(frequency, rope);
    frequencies[i] = frequency;
  }
  return frequencies;
}

}  // namespace sluice::engine
