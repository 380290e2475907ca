// The parameters of a model and their gradients: two flat arrays on one device.
//
// Values are in the model's storage type, gradients in fp32; both have the layout of ParameterLayout, so optimizer,
// all-reduce and norm see one array. Not thread-safe: one engine thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/tensor_data.h"
#include "engine/device/device_memory.h"
#include "engine/model/host_tensors.h"
#include "engine/model/model_config.h"
#include "engine/model/model_weights.h"
#include "engine/model/parameter_layout.h"

namespace sluice::engine {

struct ParametersOptions {
  kernels::DType dtype = kernels::DType::kFloat32;  // of the values: fp32 or bf16
  kernels::Device device;
  bool gradients = true;  // false: no gradient array (evaluation, generation)
  uint64_t seed = 0;      // of a value head that CreateFromTensors has to draw
};

class Parameters {
 public:
  // Drawn as `transformers` draws them: matrices normal with config.initializer_range, norm weights one, biases zero.
  // Each value is a pure function of (seed, parameter name, element): the same on every rank and device.
  static absl::StatusOr<std::unique_ptr<Parameters>> CreateRandom(const ModelConfig& config,
                                                                  const ParametersOptions& options, uint64_t seed);

  // Read from the tensors of a Hugging Face folder, converted to options.dtype. What was odd but harmless is told in
  // `warnings`, one sentence each: names the model does not have, and a file that holds a head different from the
  // embedding although the config ties them (the file's head is used, config().tie_word_embeddings becomes false).
  // A value head that is not there (a language model's folder) is drawn as by CreateRandom, from options.seed, and told
  // too; a language-model head that the model has no use for is not.
  // InvalidArgument, naming the tensor: missing, of another shape, or of a type that holds no plain numbers.
  static absl::StatusOr<std::unique_ptr<Parameters>> CreateFromTensors(const ModelConfig& config,
                                                                       const ParametersOptions& options,
                                                                       std::span<const TensorData> tensors,
                                                                       std::vector<std::string>& warnings);

  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  kernels::DType dtype() const { return options_.dtype; }
  kernels::Device device() const { return options_.device; }
  bool has_gradients() const { return options_.gradients; }
  int64_t bytes() const { return values_memory_.bytes() + gradients_memory_.bytes(); }

  kernels::TensorView values() const { return values_; }        // [layout().size()] dtype()
  kernels::TensorView gradients() const { return gradients_; }  // [layout().size()] fp32; empty without gradients
  const ModelWeights& weights() const { return weights_; }
  const ModelWeights& gradient_weights() const { return gradient_weights_; }  // REQUIRES: has_gradients()

  absl::Status ZeroGradients();

  // Moves the array to another device (host memory) or back; views taken before are invalid. device() stays: what
  // computes with an array that is elsewhere gets InvalidArgument.
  absl::Status MoveValues(kernels::Device to);
  absl::Status MoveGradients(kernels::Device to);

  // The values under their Hugging Face names. On the CPU in dtype() they are views of this object's memory.
  absl::StatusOr<HostTensors> ExportValues(kernels::DType dtype) const;
  absl::StatusOr<HostTensors> ExportGradients() const;

  // Replaces the values (a checkpoint's). Errors as CreateFromTensors; the values are then undefined.
  absl::Status ImportValues(std::span<const TensorData> tensors);

 private:
  Parameters(const ModelConfig& config, const ParametersOptions& options);
  static absl::StatusOr<std::unique_ptr<Parameters>> CreateZeros(const ModelConfig& config,
                                                                 const ParametersOptions& options);
  absl::Status FillRandom(uint64_t seed);

  ModelConfig config_;
  ParameterLayout layout_;
  ParametersOptions options_;
  DeviceMemory values_memory_;
  DeviceMemory gradients_memory_;
  kernels::TensorView values_;
  kernels::TensorView gradients_;
  ModelWeights weights_;
  ModelWeights gradient_weights_;
};

}  // namespace sluice::engine
