#include "kernels/matmul/matmul.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/matmul/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "matmul";

absl::Status ValidateFloat8(const MatMul& args, Stream stream) {
  if (args.a.shape.rank() != 2 || args.transpose_a || !args.transpose_b || !args.bias.empty()) {
    return InvalidArgument(kKernel, "a", "in fp8: expected a product A B^T of matrices, without a bias");
  }
  const int64_t rows = args.a.dim(0), depth = args.a.dim(1), columns = args.b.dim(0);
  const DType c_dtype = args.c.dtype == DType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
  RETURN_IF_ERROR(CheckView(kKernel, "a", args.a, DType::kFloat8, {rows, depth}, stream.device, Layout::kStrided));
  RETURN_IF_ERROR(CheckView(kKernel, "b", args.b, DType::kFloat8, {columns, depth}, stream.device, Layout::kStrided));
  RETURN_IF_ERROR(CheckView(kKernel, "c", args.c, c_dtype, {rows, columns}, stream.device, Layout::kStrided));
  RETURN_IF_ERROR(CheckView(kKernel, "scale_a", args.scale_a, DType::kFloat32, {1}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "scale_b", args.scale_b, DType::kFloat32, {1}, stream.device));
  const auto aligned = [](ConstTensorView view) {
    return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride * SizeOf(view.dtype) % 16 == 0;
  };
  if (depth % 16 == 0 && columns % 16 == 0 && aligned(args.a) && aligned(args.b) && aligned(args.c)) {
    return absl::OkStatus();
  }
  return InvalidArgument(kKernel, "a",
                         absl::StrCat("in fp8: K = ", depth, " and N = ", columns,
                                      " must be multiples of 16, rows begin at multiples of 16 bytes"));
}

absl::Status Validate(const MatMul& args, Stream stream) {
  if (args.a.dtype == DType::kFloat8 && !args.a.empty()) return ValidateFloat8(args, stream);
  if (!args.scale_a.empty() || !args.scale_b.empty()) return InvalidArgument(kKernel, "scale_a", "is for fp8 alone");
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
