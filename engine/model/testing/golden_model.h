// The tiny models of tests/golden/model, for tests: folder, packed batch and expected values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/safetensors_file.h"
#include "engine/data/micro_batch.h"
#include "engine/model/parameters.h"

namespace sluice::engine::testing {

inline const std::vector<std::string>& GoldenModelNames() {
  static const std::vector<std::string> names = {"llama_llama3_rope", "llama_linear_rope_tied",
                                                 "mistral_sliding_window", "qwen2", "qwen3"};
  return names;
}

struct GoldenModel {
  ModelConfig config;
  SafetensorsFile expected;
  MicroBatch batch;  // the oracle's sequences packed in their order, then a tail of four slots

  // A tensor of expected.safetensors as floats. Dies if it is not there.
  std::vector<float> Expected(const std::string& name) const;
  std::vector<int32_t> ExpectedInts(const std::string& name) const;
};

absl::StatusOr<GoldenModel> LoadGoldenModel(const std::string& name);
absl::StatusOr<std::unique_ptr<Parameters>> LoadGoldenParameters(const GoldenModel& model, const std::string& name,
                                                                 const ParametersOptions& options);

// Sequences of token ids and labels, packed in order into `token_slots` slots.
MicroBatch Pack(const std::vector<std::vector<int32_t>>& ids, const std::vector<std::vector<int32_t>>& labels,
                int64_t token_slots);

// Sequence `index` of a packed batch as a batch of its own without a tail.
MicroBatch OneSequence(const MicroBatch& batch, int64_t index);

// Empty, or a sentence about the element of `got` furthest outside of absolute + relative * |want|; NaN is outside.
std::string Difference(const std::vector<float>& got, const std::vector<float>& want, double relative, double absolute);

// Outside of absolute + of_largest * (the largest |want| of a tensor) + relative * |want|.
struct GradientTolerance {
  double relative = 0;
  double absolute = 0;
  double of_largest = 0;  // for what cancels in a sum: it is rounded by the largest of its terms
};

// Empty, or Difference's sentence for each gradient of `parameters` that is not the golden's `grad.<parameter>`, a line
// each. InvalidArgument: there are no gradients.
absl::StatusOr<std::string> GradientDifferences(const GoldenModel& golden, const Parameters& parameters,
                                                const GradientTolerance& tolerance);

}  // namespace sluice::engine::testing
