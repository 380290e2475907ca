// AdamW over the flat parameters of a model, with exact gradient norm, clipping and a guard against non-finite
// gradients. The arithmetic is kernels/adamw; this is the state it works on.
//
// Parameters in fp32 are their own master weights. Parameters in bf16 keep the other 16 bits of exact fp32 masters in
// an array of their own (the default), or nothing, and are then rounded stochastically. The moments are fp32 or bf16.
// Whether a step applies is decided on the device: Step only issues work, Read waits for it.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/cuda_graph.h"
#include "engine/device/device_memory.h"
#include "engine/device/readback.h"
#include "engine/model/host_tensors.h"
#include "engine/model/parameters.h"

namespace sluice::engine {

struct AdamWOptimizerOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double clip_grad = 1.0;                                   // largest global norm; 0: no clipping
  bool decay_all_parameters = false;                        // true: norm weights and biases are decayed too
  bool master_weights = true;                               // of bf16 parameters
  kernels::DType moments_dtype = kernels::DType::kFloat32;  // bf16: rounded stochastically
  uint64_t seed = 0;                                        // of stochastic rounding
  bool cuda_graphs = true;                                  // false: every kernel is launched by itself
};

struct OptimizerStepResult {
  double loss_sum = 0;     // what was at Step's `loss`; 0 without one
  double grad_norm = 0;    // before clipping; not finite where the step was skipped
  double clip_factor = 1;  // what the gradients were multiplied with
  bool skipped = false;    // norm or loss was not finite: parameters, state and step count are as before
};

class AdamWOptimizer {
 public:
  // `parameters` is borrowed and must outlive the optimizer. Moments start at zero, masters at the parameters.
  // FailedPrecondition: the parameters have no gradients. ResourceExhausted: no memory for the state.
  static absl::StatusOr<std::unique_ptr<AdamWOptimizer>> Create(Parameters* parameters,
                                                                const AdamWOptimizerOptions& options);

  AdamWOptimizer(const AdamWOptimizer&) = delete;
  AdamWOptimizer& operator=(const AdamWOptimizer&) = delete;

  // Issues one update from the parameters' gradients, which are left as they are. The gradients must already be those
  // of the whole step (all-reduced, normalised). `loss`: [1] fp64 on the device; the step is skipped where it is not
  // finite; or empty.
  absl::Status Step(double learning_rate, double weight_decay, kernels::ConstTensorView loss = {});

  // What became of the last Step: waits for it, not for what was issued after it.
  absl::StatusOr<OptimizerStepResult> Read();

  // Updates applied so far (skipped ones do not count), as of the last Read.
  int64_t step_count() const { return step_count_; }

  // The state under the names "exp_avg.<parameter>", "exp_avg_sq.<parameter>" in the moments' types and, where masters
  // are kept beside the parameters, "master.<parameter>" in fp32. With step_count() it restores bit for bit. One
  // HostTensors per array.
  absl::StatusOr<std::vector<HostTensors>> ExportState() const;

  // Restores what ExportState gave (and the parameters, from the masters where they are kept).
  // InvalidArgument, naming the tensor, if one is missing or has another shape; the state is then undefined.
  absl::Status ImportState(std::span<const TensorData> tensors, int64_t step_count);

  // After the parameters were replaced from outside: masters follow them. Nothing to do where there are none.
  absl::Status ResetMasterFromParameters();

  // Moves the state to another device (host memory) or back. Elsewhere than the parameters it can be exported, not
  // used.
  absl::Status Move(kernels::Device to);

  int64_t bytes() const { return memory_.bytes(); }

  // bytes() of an optimizer over parameters that are not made yet.
  static int64_t BytesFor(const ParameterLayout& layout, kernels::DType parameter_dtype,
                          const AdamWOptimizerOptions& options);

 private:
  AdamWOptimizer(Parameters* parameters, const AdamWOptimizerOptions& options);
  void Carve(const ParameterLayout& layout, kernels::DType parameter_dtype, Carver& carver);
  bool keeps_remainder() const { return !remainder_.empty(); }
  absl::Status IssueStep(double weight_decay, kernels::ConstTensorView loss);
  absl::Status Update(int64_t begin, int64_t end, double weight_decay);
  absl::Status SetStepCount(int64_t step_count);

  Parameters* parameters_;
  AdamWOptimizerOptions options_;
  DeviceMemory memory_;
  kernels::TensorView exp_avg_;         // [layout.size()]
  kernels::TensorView exp_avg_sq_;      // [layout.size()]
  kernels::TensorView remainder_;       // [layout.size()] int16; empty without masters beside the parameters
  kernels::TensorView sum_of_squares_;  // [1] fp64
  kernels::TensorView learning_rate_;   // [1] fp64
  kernels::TensorView control_;         // [kUpdateControls] fp32
  // By what a step's launches depend on: the places of parameters, gradients, state and loss, and the weight decay.
  std::map<std::tuple<const void*, const void*, const void*, const void*, double>, RecordedWork> recorded_;
  std::unique_ptr<Readback> readback_;  // control, sum of squares, loss
  bool reads_loss_ = false;
  int64_t step_count_ = 0;
};

}  // namespace sluice::engine
