#include "engine/optim/adamw_optimizer.h"

#include <array>
#include <cmath>
#include <string>

#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "kernels/adamw/adamw.h"
#include "kernels/flat/flat.h"

namespace sluice::engine {
namespace {

using kernels::ConstTensorView;
using kernels::DType;
using kernels::TensorView;

constexpr char kExpAvg[] = "exp_avg.";
constexpr char kExpAvgSq[] = "exp_avg_sq.";
constexpr char kMaster[] = "master.";

// Where Step's results lie in the readback.
constexpr size_t kSumOfSquaresOffset = kernels::kUpdateControls * sizeof(float);
constexpr size_t kLossOffset = kSumOfSquaresOffset + sizeof(double);
constexpr size_t kReadbackBytes = kLossOffset + sizeof(double);

constexpr kernels::Device kHost = kernels::Device::Cpu();

// A copy of a flat array in host memory.
absl::StatusOr<DeviceMemory> ToHost(ConstTensorView flat) {
  ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(flat.bytes(), kHost));
  RETURN_IF_ERROR(CopyTensor(flat, memory.View(0, flat.dtype, flat.shape)));
  return memory;
}

}  // namespace

AdamWOptimizer::AdamWOptimizer(Parameters* parameters, const AdamWOptimizerOptions& options)
    : parameters_(parameters), options_(options) {}

absl::StatusOr<std::unique_ptr<AdamWOptimizer>> AdamWOptimizer::Create(Parameters* parameters,
                                                                       const AdamWOptimizerOptions& options) {
  if (!parameters->has_gradients()) return absl::FailedPreconditionError("AdamW needs parameters with gradients");
  std::unique_ptr<AdamWOptimizer> optimizer(new AdamWOptimizer(parameters, options));
  Carver size;
  optimizer->Carve(parameters->layout(), parameters->dtype(), size);
  ASSIGN_OR_RETURN(optimizer->memory_, DeviceMemory::Allocate(size.bytes(), parameters->device()));
  Carver carver(optimizer->memory_);
  optimizer->Carve(parameters->layout(), parameters->dtype(), carver);
  RETURN_IF_ERROR(optimizer->ResetMasterFromParameters());
  ASSIGN_OR_RETURN(optimizer->readback_, Readback::Create(kReadbackBytes, EngineStream(parameters->device())));
  return optimizer;
}

int64_t AdamWOptimizer::BytesFor(const ParameterLayout& layout, DType parameter_dtype,
                                 const AdamWOptimizerOptions& options) {
  AdamWOptimizer sizes(/*parameters=*/nullptr, options);
  Carver size;
  sizes.Carve(layout, parameter_dtype, size);
  return size.bytes();
}

void AdamWOptimizer::Carve(const ParameterLayout& layout, DType parameter_dtype, Carver& carver) {
  const int64_t size = layout.size();
  exp_avg_ = carver.Take(options_.moments_dtype, {size});
  exp_avg_sq_ = carver.Take(options_.moments_dtype, {size});
  if (parameter_dtype == DType::kBFloat16 && options_.master_weights) remainder_ = carver.Take(DType::kInt16, {size});
  sum_of_squares_ = carver.Take(DType::kFloat64, {1});
  learning_rate_ = carver.Take(DType::kFloat64, {1});
  control_ = carver.Take(DType::kFloat32, {kernels::kUpdateControls});
}

absl::Status AdamWOptimizer::Move(kernels::Device to) {
  ASSIGN_OR_RETURN(memory_, memory_.CopiedTo(to));
  Carver carver(memory_);
  Carve(parameters_->layout(), parameters_->dtype(), carver);
  return absl::OkStatus();
}

// A master that equals its bf16 parameter has remainder 0.
absl::Status AdamWOptimizer::ResetMasterFromParameters() {
  if (!keeps_remainder()) return absl::OkStatus();
  const int64_t size = remainder_.elements();
  // The remainders as pairs of zero bits.
  return kernels::Fill(TensorView(remainder_.data, DType::kBFloat16, {size}, remainder_.device), 0.0f,
                       EngineStream(parameters_->device()));
}

absl::Status AdamWOptimizer::Step(double learning_rate, double weight_decay, ConstTensorView loss) {
  const kernels::Stream stream = EngineStream(parameters_->device());
  RETURN_IF_ERROR(kernels::Fill(learning_rate_, learning_rate, stream));
  const auto issue = [&] { return IssueStep(weight_decay, loss); };
  RecordedWork& recorded =
      recorded_[{parameters_->values().data, parameters_->gradients().data, exp_avg_.data, loss.data, weight_decay}];
  RETURN_IF_ERROR(options_.cuda_graphs ? recorded.Run(stream, issue) : issue());
  reads_loss_ = !loss.empty();
  if (!reads_loss_) return readback_->Issue({control_, sum_of_squares_});
  return readback_->Issue({control_, sum_of_squares_, loss});
}

absl::Status AdamWOptimizer::IssueStep(double weight_decay, ConstTensorView loss) {
  const kernels::Stream stream = EngineStream(parameters_->device());
  RETURN_IF_ERROR(kernels::SumOfSquares(parameters_->gradients(), sum_of_squares_, stream));
  RETURN_IF_ERROR(kernels::Run(kernels::DecideUpdate{.sum_of_squares = sum_of_squares_,
                                                     .loss = loss,
                                                     .learning_rate = learning_rate_,
                                                     .max_norm = options_.clip_grad,
                                                     .beta1 = options_.beta1,
                                                     .beta2 = options_.beta2,
                                                     .control = control_},
                               stream));
  const int64_t size = parameters_->layout().size();
  const int64_t decayed = options_.decay_all_parameters ? size : parameters_->layout().decayed_size();
  RETURN_IF_ERROR(Update(0, decayed, weight_decay));
  return Update(decayed, size, /*weight_decay=*/0);
}

absl::StatusOr<OptimizerStepResult> AdamWOptimizer::Read() {
  RETURN_IF_ERROR(readback_->Wait());
  const auto control = [&](kernels::UpdateControl element) {
    return readback_->At<float>(0, static_cast<size_t>(element));
  };
  step_count_ = static_cast<int64_t>(control(kernels::kControlUpdates));
  OptimizerStepResult result;
  if (reads_loss_) result.loss_sum = readback_->At<double>(kLossOffset);
  result.skipped = control(kernels::kControlApplies) == 0.0f;
  // The double has more digits; a loss that was not finite shows in the float only.
  result.grad_norm =
      result.skipped ? control(kernels::kControlGradNorm) : std::sqrt(readback_->At<double>(kSumOfSquaresOffset));
  result.clip_factor = control(kernels::kControlClipFactor);
  return result;
}

absl::Status AdamWOptimizer::Update(int64_t begin, int64_t end, double weight_decay) {
  if (begin == end) return absl::OkStatus();
  return kernels::Run(kernels::AdamW{.control = control_,
                                     .grad = parameters_->gradients().Rows(begin, end),
                                     .param = parameters_->values().Rows(begin, end),
                                     .remainder = keeps_remainder() ? remainder_.Rows(begin, end) : TensorView::Empty(),
                                     .exp_avg = exp_avg_.Rows(begin, end),
                                     .exp_avg_sq = exp_avg_sq_.Rows(begin, end),
                                     .options = {.beta1 = options_.beta1,
                                                 .beta2 = options_.beta2,
                                                 .eps = options_.eps,
                                                 .weight_decay = weight_decay,
                                                 .seed = options_.seed,
                                                 .first_element = begin}},
                      EngineStream(parameters_->device()));
}

absl::Status AdamWOptimizer::SetStepCount(int64_t step_count) {
  step_count_ = step_count;
  std::array<float, kernels::kUpdateControls> control = {};
  control[kernels::kControlUpdates] = static_cast<float>(step_count);
  return CopyTensor(ConstTensorView(control.data(), control_.shape), control_);
}

absl::StatusOr<std::vector<HostTensors>> AdamWOptimizer::ExportState() const {
  const ParameterLayout& layout = parameters_->layout();
  std::vector<HostTensors> state;
  ASSIGN_OR_RETURN(state.emplace_back(), ExportFlat(layout, exp_avg_, exp_avg_.dtype, kExpAvg));
  ASSIGN_OR_RETURN(state.emplace_back(), ExportFlat(layout, exp_avg_sq_, exp_avg_sq_.dtype, kExpAvgSq));
  if (!keeps_remainder()) return state;
  // Masters are joined on the host: the device may have no room for them in one piece.
  ASSIGN_OR_RETURN(const DeviceMemory param, ToHost(parameters_->values()));
  ASSIGN_OR_RETURN(const DeviceMemory remainder, ToHost(remainder_));
  ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemory::Allocate(layout.size() * 4, kHost));
  const TensorView master = memory.View(0, DType::kFloat32, {layout.size()});
  RETURN_IF_ERROR(kernels::Run(kernels::JoinMaster{.param = param.View(0, DType::kBFloat16, master.shape),
                                                   .remainder = remainder.View(0, DType::kInt16, master.shape),
                                                   .master = master},
                               EngineStream(kHost)));
  ASSIGN_OR_RETURN(HostTensors exported, ExportFlat(layout, master, DType::kFloat32, kMaster));
  exported.storage = memory;  // what the tensors are views of
  state.push_back(std::move(exported));
  return state;
}

absl::Status AdamWOptimizer::ImportState(std::span<const TensorData> tensors, int64_t step_count) {
  if (step_count < 0) return absl::InvalidArgumentError("optimizer: step count below 0");
  const ParameterLayout& layout = parameters_->layout();
  RETURN_IF_ERROR(ImportFlat(layout, tensors, exp_avg_, kExpAvg));
  RETURN_IF_ERROR(ImportFlat(layout, tensors, exp_avg_sq_, kExpAvgSq));
  RETURN_IF_ERROR(SetStepCount(step_count));
  if (!keeps_remainder()) return absl::OkStatus();
  const kernels::Shape shape = {layout.size()};
  ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemory::Allocate(layout.size() * 8, kHost));
  const TensorView master = memory.View(0, DType::kFloat32, shape);
  const TensorView param = memory.View(layout.size() * 4, DType::kBFloat16, shape);
  const TensorView remainder = memory.View(layout.size() * 6, DType::kInt16, shape);
  RETURN_IF_ERROR(ImportFlat(layout, tensors, master, kMaster));
  RETURN_IF_ERROR(kernels::Run(kernels::SplitMaster{.master = master, .param = param, .remainder = remainder},
                               EngineStream(kHost)));
  RETURN_IF_ERROR(CopyTensor(param, parameters_->values()));
  return CopyTensor(remainder, remainder_);
}

}  // namespace sluice::engine
