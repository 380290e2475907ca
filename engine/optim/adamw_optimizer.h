// AdamW over the flat parameters of a model, with exact gradient norm, clipping and a guard against non-finite
// gradients.
//
//   norm = sqrt(sum g^2) over all parameters;   c = min(1, clip_grad / (norm + 1e-6));   AdamW with c * g
//
// The sum is in double and in an order that depends on the number of elements only. Master weights are fp32: the
// parameters themselves where they are fp32, a copy of its own where they are bf16. The update rule is kernels/adamw.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/device_memory.h"
#include "engine/model/host_tensors.h"
#include "engine/model/parameters.h"

namespace sluice::engine {

struct AdamWOptimizerOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double clip_grad = 1.0;             // largest global norm; 0: no clipping
  bool decay_all_parameters = false;  // true: norm weights and biases are decayed too
};

struct OptimizerStepResult {
  double grad_norm = 0;    // before clipping; not finite where the step was skipped
  double clip_factor = 1;  // what the gradients were multiplied with
  bool skipped = false;    // the norm was not finite: parameters, state and step count are as before
};

class AdamWOptimizer {
 public:
  // `parameters` is borrowed and must outlive the optimizer. Moments start at zero, master weights at the parameters.
  // FailedPrecondition: the parameters have no gradients. ResourceExhausted: no memory for the state.
  static absl::StatusOr<std::unique_ptr<AdamWOptimizer>> Create(Parameters* parameters,
                                                                const AdamWOptimizerOptions& options);

  AdamWOptimizer(const AdamWOptimizer&) = delete;
  AdamWOptimizer& operator=(const AdamWOptimizer&) = delete;

  // One update from the parameters' gradients, which are left as they are. The gradients must already be those of the
  // whole step (all-reduced, normalised).
  absl::StatusOr<OptimizerStepResult> Step(double learning_rate, double weight_decay);

  // Updates applied so far (skipped ones do not count).
  int64_t step_count() const { return step_count_; }

  // The state under the names "exp_avg.<parameter>", "exp_avg_sq.<parameter>" and, where masters are kept,
  // "master.<parameter>"; all fp32. With step_count() it restores bit for bit. One HostTensors per array.
  absl::StatusOr<std::vector<HostTensors>> ExportState() const;

  // Restores what ExportState gave (and the parameters, from the masters where they are kept).
  // InvalidArgument, naming the tensor, if one is missing or has another shape; the state is then undefined.
  absl::Status ImportState(std::span<const TensorData> tensors, int64_t step_count);

  // After the parameters were replaced from outside: masters follow them. Nothing to do where there are none.
  absl::Status ResetMasterFromParameters();

  int64_t bytes() const { return memory_.bytes(); }

 private:
  AdamWOptimizer(Parameters* parameters, const AdamWOptimizerOptions& options);
  void Carve(Carver& carver);
  bool keeps_master() const { return parameters_->dtype() != kernels::DType::kFloat32; }
  absl::Status Update(int64_t begin, int64_t end, double learning_rate, double weight_decay, double clip_factor);

  Parameters* parameters_;
  AdamWOptimizerOptions options_;
  DeviceMemory memory_;
  kernels::TensorView exp_avg_;     // [layout.size()] fp32
  kernels::TensorView exp_avg_sq_;  // [layout.size()] fp32
  kernels::TensorView master_;      // [layout.size()] fp32; the parameters' own array where they are fp32
  int64_t step_count_ = 0;
};

}  // namespace sluice::engine
