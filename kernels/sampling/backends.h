// One row's sampling on the CPU: for sampling.cc, which checks the row and names it in errors. A sampler on the device
// takes the place of SampleRow.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "kernels/sampling/sampling.h"

namespace sluice::kernels::cpu {

// InvalidArgument for logits that give no distribution; the message says which.
absl::Status SampleRow(std::span<const float> logits, const SamplingRow& row, SampledToken* out);
absl::Status RowDistribution(std::span<const float> logits, const SamplingRow& row, std::span<float> probabilities);

}  // namespace sluice::kernels::cpu
