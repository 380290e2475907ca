#include "kernels/matmul/matmul.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/matmul/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "matmul";

absl::Status Validate(const MatMul& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "a", args.a, 2, stream, Layout::kStrided));
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "b", args.b, 2, stream, Layout::kStrided));
  const int64_t rows = args.a.dim(args.transpose_a ? 1 : 0);
  const int64_t depth = args.a.dim(args.transpose_a ? 0 : 1);
  const int64_t columns = args.b.dim(args.transpose_b ? 0 : 1);
  const Shape b_shape = args.transpose_b ? Shape{columns, depth} : Shape{depth, columns};
  RETURN_IF_ERROR(CheckView(kKernel, "b", args.b, args.a.dtype, b_shape, stream.device, Layout::kStrided));
  const DType c_dtype = args.c.dtype == args.a.dtype ? args.a.dtype : DType::kFloat32;
  RETURN_IF_ERROR(CheckView(kKernel, "c", args.c, c_dtype, {rows, columns}, stream.device, Layout::kStrided));
  if (args.bias.empty()) return absl::OkStatus();
  if (args.beta != 0.0f) return InvalidArgument(kKernel, "bias", "given with a beta that is not 0");
  return CheckView(kKernel, "bias", args.bias, c_dtype, {columns}, stream.device);
}

}  // namespace

absl::Status Run(const MatMul& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Run(args, stream) : cuda::Run(args, stream);
}

}  // namespace sluice::kernels
