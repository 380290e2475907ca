#include "kernels/rms_norm/rms_norm.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/rms_norm/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "rms_norm";

// [T] of [T, H], [T, heads] of [T, heads, H].
Shape RowsShape(const Shape& shape) { return shape.rank() == 3 ? Shape{shape[0], shape[1]} : Shape{shape[0]}; }

absl::Status CheckInput(std::string_view argument, ConstTensorView x, Stream stream) {
  const int rank = x.shape.rank() == 3 ? 3 : 2;
  RETURN_IF_ERROR(CheckLeadingView(kKernel, argument, x, rank, stream, Layout::kStrided));
  const int64_t hidden = x.dim(rank - 1);
  if (hidden % 8 != 0 || hidden == 0) {
    return InvalidArgument(kKernel, argument, absl::StrCat("its last dimension ", hidden, " is not a multiple of 8"));
  }
  return absl::OkStatus();
}

absl::Status Validate(const RmsNormForward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInput("x", args.x, stream));
  const auto check = [&](std::string_view argument, ConstTensorView view, const Shape& shape) {
    return CheckView(kKernel, argument, view, args.x.dtype, shape, stream.device, Layout::kStrided);
  };
  if (!args.residual.empty()) {
    RETURN_IF_ERROR(check("residual", args.residual, args.x.shape));
    RETURN_IF_ERROR(check("residual_out", args.residual_out, args.x.shape));
  } else if (!args.residual_out.empty()) {
    return InvalidArgument(kKernel, "residual_out", "given without a residual");
  }
  RETURN_IF_ERROR(
      CheckView(kKernel, "weight", args.weight, args.x.dtype, {args.x.dim(args.x.shape.rank() - 1)}, stream.device));
  RETURN_IF_ERROR(check("y", args.y, args.x.shape));
  RETURN_IF_ERROR(CheckView(kKernel, "rstd", args.rstd, DType::kFloat32, RowsShape(args.x.shape), stream.device));
  if (!(args.eps > 0)) return InvalidArgument(kKernel, "eps", absl::StrCat(args.eps, " is not positive"));
  return absl::OkStatus();
}

absl::Status Validate(const RmsNormBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInput("r", args.r, stream));
  const auto check = [&](std::string_view argument, ConstTensorView view, DType dtype, const Shape& shape,
                         Layout layout) {
    return CheckView(kKernel, argument, view, dtype, shape, stream.device, layout);
  };
  const Shape weight_shape = {args.r.dim(args.r.shape.rank() - 1)};
  RETURN_IF_ERROR(check("dy", args.dy, args.r.dtype, args.r.shape, Layout::kStrided));
  RETURN_IF_ERROR(check("weight", args.weight, args.r.dtype, weight_shape, Layout::kDense));
  RETURN_IF_ERROR(check("rstd", args.rstd, DType::kFloat32, RowsShape(args.r.shape), Layout::kDense));
  RETURN_IF_ERROR(check("dr", args.dr, args.r.dtype, args.r.shape, Layout::kStrided));
  if (!args.y.empty()) RETURN_IF_ERROR(check("y", args.y, args.r.dtype, args.r.shape, Layout::kStrided));
  if (args.dweight.empty()) return absl::OkStatus();
  return check("dweight", args.dweight, DType::kFloat32, weight_shape, Layout::kDense);
}

}  // namespace

absl::Status Forward(const RmsNormForward& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : cuda::Forward(args, stream);
}

absl::Status Backward(const RmsNormBackward& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : cuda::Backward(args, stream);
}

}  // namespace sluice::kernels
