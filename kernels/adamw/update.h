// The arithmetic of AdamW for one element: one text for every device, so that they agree to the bit. REQUIRES of who
// includes it: no contraction of products and sums.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/adamw/adamw.h"
#include "kernels/host_device.h"
#include "kernels/philox.h"

namespace sluice::kernels {

// The scalars of a step, as in adamw.h.
struct UpdateFactors {
  float decay, first, beta2, second, eps, step_size, inverse_root_correction, clip;
};

// `control` as DecideUpdate left it.
SLUICE_HOST_DEVICE inline UpdateFactors FactorsOf(const AdamWOptions& options, const float* control) {
  const double correction1 = control[kControlCorrection1];
  const double learning_rate =
      static_cast<double>(control[kControlLearningRate]) + static_cast<double>(control[kControlLearningRateRest]);
  return {.decay = static_cast<float>(1.0 - learning_rate * options.weight_decay),
          .first = static_cast<float>(1.0 - options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .second = static_cast<float>(1.0 - options.beta2),
          .eps = static_cast<float>(options.eps),
          .step_size = static_cast<float>(learning_rate / correction1),
          .inverse_root_correction = static_cast<float>(1.0 / static_cast<double>(control[kControlRootCorrection2])),
          .clip = control[kControlClipFactor]};
}

SLUICE_HOST_DEVICE inline void UpdateElement(const UpdateFactors& f, float grad, float& p, float& m, float& v) {
  const float g = grad * f.clip;
  m = m + f.first * (g - m);
  v = v * f.beta2 + f.second * g * g;
  const float denominator = std::sqrt(v) * f.inverse_root_correction + f.eps;
  p = p * f.decay - f.step_size * m / denominator;
}

// Fills `control`. The square roots and powers are in double: the devices may differ in their last bit, which the
// rounding to fp32 almost always hides.
SLUICE_HOST_DEVICE inline void Decide(double sum_of_squares, double loss, double learning_rate, double max_norm,
                                      double beta1, double beta2, float* control) {
  const double norm = std::sqrt(sum_of_squares);
  const auto norm32 = static_cast<float>(norm);
  // x - x is 0 for finite x only.
  const bool applies = norm32 - norm32 == 0.0f && loss - loss == 0.0;
  const double ratio = max_norm / (norm + 1e-6);
  const double updates = static_cast<double>(control[kControlUpdates]) + (applies ? 1.0 : 0.0);
  // A step that is skipped because of its loss shows in the norm too: one number tells.
  control[kControlGradNorm] = applies || norm32 - norm32 != 0.0f ? norm32 : static_cast<float>(loss - loss);
  control[kControlClipFactor] = applies && max_norm > 0.0 && ratio < 1.0 ? static_cast<float>(ratio) : 1.0f;
  control[kControlApplies] = applies ? 1.0f : 0.0f;
  control[kControlUpdates] = static_cast<float>(updates);
  control[kControlCorrection1] = static_cast<float>(1.0 - std::pow(beta1, updates));
  control[kControlRootCorrection2] = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, updates)));
  control[kControlLearningRate] = static_cast<float>(learning_rate);
  control[kControlLearningRateRest] =
      static_cast<float>(learning_rate - static_cast<double>(control[kControlLearningRate]));
}

// Random bits come in groups of eight elements: one Philox block holds 16 bits for one rounding of each.
inline constexpr int kGroup = 8;
enum class Rounding : uint8_t { kExpAvg, kExpAvgSq, kParam };
inline constexpr int kRoundings = 3;

// `group` = element / kGroup.
SLUICE_HOST_DEVICE inline PhiloxBlock RoundingBits(uint64_t seed, uint64_t updates, int64_t group, Rounding rounding) {
  return Philox<7>(seed, updates, static_cast<uint64_t>(group) * kRoundings + static_cast<uint64_t>(rounding));
}

// Those of the group's element `index`.
SLUICE_HOST_DEVICE inline uint32_t BitsOf(const PhiloxBlock& block, int index) {
  return (block[static_cast<size_t>(index / 2)] >> (16 * (index % 2))) & 0xFFFFu;
}

// bf16 bits of `value`: one of its two neighbours, the upper one (in magnitude) with a probability of how far it is on
// the way there. What bf16 holds stays; a finite value stays finite, infinity and the NaN of an operation stay what
// they are. `random` < 2^16.
SLUICE_HOST_DEVICE inline uint16_t RoundStochastically(float value, uint32_t random) {
  const auto word = std::bit_cast<uint32_t>(value);
  // From the largest finite bf16 on there is nothing above to round to.
  const bool stays = (word & 0x7FFFFFFFu) >= 0x7F7F0000u;
  return static_cast<uint16_t>((stays ? word : word + random) >> 16);
}

// adamw.h, "exact master". NaN stays NaN, without its payload.
struct MasterParts {
  uint16_t param;
  int16_t remainder;
};
SLUICE_HOST_DEVICE inline MasterParts Split(float master) {
  const auto word = std::bit_cast<uint32_t>(master);
  const bool nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
  const uint32_t param = nan ? (word >> 16) | 0x40u : (word + 0x8000u) >> 16;
  const uint32_t remainder = nan ? 0u : word & 0xFFFFu;
  return {static_cast<uint16_t>(param), static_cast<int16_t>(remainder)};
}
SLUICE_HOST_DEVICE inline float Join(uint16_t param, int16_t remainder) {
  return std::bit_cast<float>((static_cast<uint32_t>(param) << 16) +
                              static_cast<uint32_t>(static_cast<int32_t>(remainder)));
}

}  // namespace sluice::kernels
