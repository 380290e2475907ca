#include "kernels/rope/rope.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/rope/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "rope";

absl::Status Validate(const Rope& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "q", args.q, 3, stream, Layout::kStrided));
  const int64_t head_dim = args.q.dim(2);
  if (head_dim % 2 != 0) return InvalidArgument(kKernel, "q", absl::StrCat("its head size ", head_dim, " is odd"));
  if (!args.k.empty()) {
    const Shape k_shape = {args.q.dim(0), args.k.dim(1), head_dim};
    RETURN_IF_ERROR(CheckView(kKernel, "k", args.k, args.q.dtype, k_shape, stream.device, Layout::kStrided));
  }
  RETURN_IF_ERROR(CheckView(kKernel, "positions", args.positions, DType::kInt32, {args.q.dim(0)}, stream.device));
  return CheckView(kKernel, "inv_freq", args.inv_freq, DType::kFloat32, {head_dim / 2}, stream.device);
}

}  // namespace

absl::Status Forward(const Rope& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : aten::Forward(args, stream);
}

absl::Status Backward(const Rope& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : aten::Backward(args, stream);
}

}  // namespace sluice::kernels
