#include "kernels/swiglu/swiglu.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/matmul/matmul.h"
#include "kernels/swiglu/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "swiglu";

absl::Status CheckPacked(ConstTensorView gate_up, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "gate_up", gate_up, 2, stream));
  if (gate_up.dim(1) % 2 == 0) return absl::OkStatus();
  return InvalidArgument(kKernel, "gate_up", absl::StrCat("its ", gate_up.dim(1), " columns are no pair of halves"));
}

Shape HalfOf(ConstTensorView gate_up) { return {gate_up.dim(0), gate_up.dim(1) / 2}; }

}  // namespace

absl::Status Forward(const SwigluForward& args, Stream stream) {
  RETURN_IF_ERROR(CheckPacked(args.gate_up, stream));
  RETURN_IF_ERROR(CheckView(kKernel, "y", args.y, args.gate_up.dtype, HalfOf(args.gate_up), stream.device));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : cuda::Forward(args, stream);
}

absl::Status Forward(const SwigluProjection& args, Stream stream) {
  RETURN_IF_ERROR(CheckPacked(args.gate_up, stream));
  RETURN_IF_ERROR(CheckView(kKernel, "y", args.y, args.gate_up.dtype, HalfOf(args.gate_up), stream.device));
  if (stream.device.is_cuda() && cuda::CanFuse(args)) {
    // What the product would check.
    const DType dtype = args.x.dtype;
    const int64_t hidden = args.x.dim(1);
    RETURN_IF_ERROR(CheckView(kKernel, "x", args.x, dtype, {args.gate_up.dim(0), hidden}, stream.device));
    RETURN_IF_ERROR(CheckView(kKernel, "weight", args.weight, dtype, {args.gate_up.dim(1), hidden}, stream.device));
    return cuda::RunFused(args, stream);
  }
  RETURN_IF_ERROR(kernels::Run(
      MatMul{.a = args.x, .b = args.weight, .transpose_b = true, .c = args.gate_up, .bias = args.bias}, stream));
  return Forward(SwigluForward{.gate_up = args.gate_up, .y = args.y}, stream);
}

absl::Status Backward(const SwigluBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckPacked(args.gate_up, stream));
  RETURN_IF_ERROR(CheckView(kKernel, "dy", args.dy, args.gate_up.dtype, HalfOf(args.gate_up), stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "dgate_up", args.dgate_up, args.gate_up.dtype, args.gate_up.shape, stream.device));
  if (!args.y.empty()) {
    RETURN_IF_ERROR(CheckView(kKernel, "y", args.y, args.gate_up.dtype, HalfOf(args.gate_up), stream.device));
  }
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : cuda::Backward(args, stream);
}

}  // namespace sluice::kernels
