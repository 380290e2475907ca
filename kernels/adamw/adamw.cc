#include "kernels/adamw/adamw.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/adamw/backends.h"
#include "kernels/adamw/update.h"
#include "kernels/check.h"

namespace sluice::kernels {
namespace {

// A decay rate of a moment.
absl::Status CheckBeta(std::string_view kernel, std::string_view argument, double beta) {
  if (beta >= 0.0 && beta < 1.0) return absl::OkStatus();
  return InvalidArgument(kernel, argument, absl::StrCat(beta, " is not in [0, 1)"));
}

absl::Status Validate(const DecideUpdate& args, Stream stream) {
  constexpr std::string_view kKernel = "decide_update";
  RETURN_IF_ERROR(CheckView(kKernel, "sum_of_squares", args.sum_of_squares, DType::kFloat64, Shape{1}, stream.device));
  if (!args.loss.empty()) {
    RETURN_IF_ERROR(CheckView(kKernel, "loss", args.loss, DType::kFloat64, Shape{1}, stream.device));
  }
  RETURN_IF_ERROR(CheckView(kKernel, "learning_rate", args.learning_rate, DType::kFloat64, Shape{1}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "control", args.control, DType::kFloat32, Shape{kUpdateControls}, stream.device));
  if (!(args.max_norm >= 0.0)) return InvalidArgument(kKernel, "max_norm", absl::StrCat(args.max_norm, " is below 0"));
  RETURN_IF_ERROR(CheckBeta(kKernel, "beta1", args.beta1));
  return CheckBeta(kKernel, "beta2", args.beta2);
}

absl::Status Validate(const AdamW& args, Stream stream) {
  constexpr std::string_view kKernel = "adamw";
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "param", args.param, 1, stream));
  const auto check = [&](std::string_view argument, ConstTensorView view, DType dtype) {
    return CheckView(kKernel, argument, view, dtype, args.param.shape, stream.device);
  };
  RETURN_IF_ERROR(CheckView(kKernel, "control", args.control, DType::kFloat32, Shape{kUpdateControls}, stream.device));
  RETURN_IF_ERROR(check("grad", args.grad, DType::kFloat32));
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "exp_avg", args.exp_avg, 1, stream));
  RETURN_IF_ERROR(check("exp_avg", args.exp_avg, args.exp_avg.dtype));
  RETURN_IF_ERROR(check("exp_avg_sq", args.exp_avg_sq, args.exp_avg.dtype));
  if (!args.remainder.empty()) {
    if (args.param.dtype != DType::kBFloat16) {
      return InvalidArgument(kKernel, "remainder", "is for param in bf16, param is fp32");
    }
    RETURN_IF_ERROR(check("remainder", args.remainder, DType::kInt16));
  }
  RETURN_IF_ERROR(CheckBeta(kKernel, "beta1", args.options.beta1));
  RETURN_IF_ERROR(CheckBeta(kKernel, "beta2", args.options.beta2));
  if (args.options.first_element < 0 || args.options.first_element % kGroup != 0) {
    return InvalidArgument(kKernel, "first_element",
                           absl::StrCat(args.options.first_element, " is not a multiple of ", kGroup));
  }
  return absl::OkStatus();
}

absl::Status CheckMaster(std::string_view kernel, ConstTensorView master, ConstTensorView param,
                         ConstTensorView remainder, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kernel, "master", master, 1, stream));
  RETURN_IF_ERROR(CheckView(kernel, "master", master, DType::kFloat32, master.shape, stream.device));
  RETURN_IF_ERROR(CheckView(kernel, "param", param, DType::kBFloat16, master.shape, stream.device));
  return CheckView(kernel, "remainder", remainder, DType::kInt16, master.shape, stream.device);
}

absl::Status Validate(const SplitMaster& args, Stream stream) {
  return CheckMaster("split_master", args.master, args.param, args.remainder, stream);
}

absl::Status Validate(const JoinMaster& args, Stream stream) {
  return CheckMaster("join_master", args.master, args.param, args.remainder, stream);
}

template <typename Args>
absl::Status Dispatch(const Args& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Run(args, stream) : cuda::Run(args, stream);
}

}  // namespace

absl::Status Run(const DecideUpdate& args, Stream stream) { return Dispatch(args, stream); }
absl::Status Run(const AdamW& args, Stream stream) { return Dispatch(args, stream); }
absl::Status Run(const SplitMaster& args, Stream stream) { return Dispatch(args, stream); }
absl::Status Run(const JoinMaster& args, Stream stream) { return Dispatch(args, stream); }

}  // namespace sluice::kernels
