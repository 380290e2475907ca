#include "engine/optim/adamw_optimizer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/status_macros.h"
#include "kernels/adamw/adamw.h"
#include "kernels/flat/flat.h"

namespace sluice::engine {
namespace {

using kernels::DType;
using kernels::TensorView;

constexpr char kExpAvg[] = "exp_avg.";
constexpr char kExpAvgSq[] = "exp_avg_sq.";
constexpr char kMaster[] = "master.";

}  // namespace

AdamWOptimizer::AdamWOptimizer(Parameters* parameters, const AdamWOptimizerOptions& options)
    : parameters_(parameters), options_(options) {}

absl::StatusOr<std::unique_ptr<AdamWOptimizer>> AdamWOptimizer::Create(Parameters* parameters,
                                                                       const AdamWOptimizerOptions& options) {
  if (!parameters->has_gradients()) return absl::FailedPreconditionError("AdamW needs parameters with gradients");
  std::unique_ptr<AdamWOptimizer> optimizer(new AdamWOptimizer(parameters, options));
  Carver size;
  optimizer->Carve(size);
  ASSIGN_OR_RETURN(optimizer->memory_, DeviceMemory::Allocate(size.bytes(), parameters->device()));
  Carver carver(optimizer->memory_);
  optimizer->Carve(carver);
  RETURN_IF_ERROR(optimizer->ResetMasterFromParameters());
  return optimizer;
}

void AdamWOptimizer::Carve(Carver& carver) {
  const int64_t size = parameters_->layout().size();
  exp_avg_ = carver.Take(DType::kFloat32, {size});
  exp_avg_sq_ = carver.Take(DType::kFloat32, {size});
  master_ = keeps_master() ? carver.Take(DType::kFloat32, {size}) : parameters_->values();
}

absl::Status AdamWOptimizer::ResetMasterFromParameters() {
  if (!keeps_master()) return absl::OkStatus();
  return kernels::Cast(parameters_->values(), master_, kernels::DefaultStream(parameters_->device()));
}

absl::StatusOr<OptimizerStepResult> AdamWOptimizer::Step(double learning_rate, double weight_decay) {
  const kernels::Stream stream = kernels::DefaultStream(parameters_->device());
  OptimizerStepResult result;
  ASSIGN_OR_RETURN(const double sum_of_squares, kernels::SumOfSquares(parameters_->gradients(), stream));
  result.grad_norm = std::sqrt(sum_of_squares);
  if (!std::isfinite(result.grad_norm)) {
    result.skipped = true;
    return result;
  }
  if (options_.clip_grad > 0) {
    // 1e-6 as in torch.nn.utils.clip_grad_norm_.
    result.clip_factor = std::min(1.0, options_.clip_grad / (result.grad_norm + 1e-6));
  }
  ++step_count_;
  const int64_t size = parameters_->layout().size();
  const int64_t decayed = options_.decay_all_parameters ? size : parameters_->layout().decayed_size();
  RETURN_IF_ERROR(Update(0, decayed, learning_rate, weight_decay, result.clip_factor));
  RETURN_IF_ERROR(Update(decayed, size, learning_rate, /*weight_decay=*/0, result.clip_factor));
  return result;
}

absl::Status AdamWOptimizer::Update(int64_t begin, int64_t end, double learning_rate, double weight_decay,
                                    double clip_factor) {
  if (begin == end) return absl::OkStatus();
  return kernels::Run(
      kernels::AdamW{.master = master_.Rows(begin, end),
                     .exp_avg = exp_avg_.Rows(begin, end),
                     .exp_avg_sq = exp_avg_sq_.Rows(begin, end),
                     .grad = parameters_->gradients().Rows(begin, end),
                     .param = keeps_master() ? parameters_->values().Rows(begin, end) : TensorView::Empty(),
                     .options = {.learning_rate = learning_rate,
                                 .beta1 = options_.beta1,
                                 .beta2 = options_.beta2,
                                 .eps = options_.eps,
                                 .weight_decay = weight_decay,
                                 .step = step_count_,
                                 .grad_scale = clip_factor}},
      kernels::DefaultStream(parameters_->device()));
}

absl::StatusOr<std::vector<HostTensors>> AdamWOptimizer::ExportState() const {
  const ParameterLayout& layout = parameters_->layout();
  std::vector<HostTensors> state;
  ASSIGN_OR_RETURN(state.emplace_back(), ExportFlat(layout, exp_avg_, DType::kFloat32, kExpAvg));
  ASSIGN_OR_RETURN(state.emplace_back(), ExportFlat(layout, exp_avg_sq_, DType::kFloat32, kExpAvgSq));
  if (keeps_master()) {
    ASSIGN_OR_RETURN(state.emplace_back(), ExportFlat(layout, master_, DType::kFloat32, kMaster));
  }
  return state;
}

absl::Status AdamWOptimizer::ImportState(std::span<const TensorData> tensors, int64_t step_count) {
  if (step_count < 0) return absl::InvalidArgumentError("optimizer: step count below 0");
  const ParameterLayout& layout = parameters_->layout();
  RETURN_IF_ERROR(ImportFlat(layout, tensors, exp_avg_, kExpAvg));
  RETURN_IF_ERROR(ImportFlat(layout, tensors, exp_avg_sq_, kExpAvgSq));
  if (keeps_master()) {
    RETURN_IF_ERROR(ImportFlat(layout, tensors, master_, kMaster));
    RETURN_IF_ERROR(kernels::Cast(master_, parameters_->values(), kernels::DefaultStream(parameters_->device())));
  }
  step_count_ = step_count;
  return absl::OkStatus();
}

}  // namespace sluice::engine
