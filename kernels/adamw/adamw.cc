#include "kernels/adamw/adamw.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/adamw/backends.h"
#include "kernels/check.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "adamw";

absl::Status Validate(const AdamW& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "master", args.master, 1, stream));
  const auto check = [&](std::string_view argument, ConstTensorView view, DType dtype) {
    return CheckView(kKernel, argument, view, dtype, args.master.shape, stream.device);
  };
  RETURN_IF_ERROR(check("master", args.master, DType::kFloat32));
  RETURN_IF_ERROR(check("exp_avg", args.exp_avg, DType::kFloat32));
  RETURN_IF_ERROR(check("exp_avg_sq", args.exp_avg_sq, DType::kFloat32));
  RETURN_IF_ERROR(check("grad", args.grad, DType::kFloat32));
  if (!args.param.empty()) {
    RETURN_IF_ERROR(check("param", args.param, IsFloating(args.param.dtype) ? args.param.dtype : DType::kBFloat16));
  }
  if (args.options.step < 1) return InvalidArgument(kKernel, "step", absl::StrCat(args.options.step, " is below 1"));
  return absl::OkStatus();
}

}  // namespace

absl::Status Run(const AdamW& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Run(args, stream) : aten::Run(args, stream);
}

}  // namespace sluice::kernels
