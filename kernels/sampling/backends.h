// What is behind the sampling dispatch: for sampling.cc, which checks the rows and names them in errors.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "kernels/sampling/sampling.h"

namespace sluice::kernels::cpu {

// InvalidArgument for logits that give no distribution; the message says which.
absl::Status SampleRow(std::span<const float> logits, const SamplingRow& row, SampledToken* out);
absl::Status RowDistribution(std::span<const float> logits, const SamplingRow& row, std::span<float> probabilities);

}  // namespace sluice::kernels::cpu

namespace sluice::kernels::cuda {

// Rows without penalty, forbidden tokens and filters. A row whose logits give no distribution gets token -1. Waits.
absl::Status SampleRows(ConstTensorView logits, std::span<const SamplingRow> rows, std::span<SampledToken> out,
                        Stream stream);
// Rows of logits to the host, without the gaps between them. Waits.
absl::Status CopyRows(ConstTensorView logits, float* to, Stream stream);

}  // namespace sluice::kernels::cuda
