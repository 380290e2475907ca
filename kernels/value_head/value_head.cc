#include "kernels/value_head/value_head.h"

#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/value_head/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "value_head";

}  // namespace

absl::Status Forward(const ValueHeadForward& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "hidden", args.hidden, 2, stream));
  const int64_t tokens = args.hidden.dim(0), hidden = args.hidden.dim(1);
  RETURN_IF_ERROR(CheckView(kKernel, "weight", args.weight, args.hidden.dtype, {1, hidden}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "value", args.value, DType::kFloat32, {tokens}, stream.device));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : aten::Forward(args, stream);
}

absl::Status Backward(const ValueHeadBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "hidden", args.hidden, 2, stream));
  const int64_t tokens = args.hidden.dim(0), hidden = args.hidden.dim(1);
  RETURN_IF_ERROR(CheckView(kKernel, "weight", args.weight, args.hidden.dtype, {1, hidden}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "d_value", args.d_value, DType::kFloat32, {tokens}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "dhidden", args.dhidden, args.hidden.dtype, args.hidden.shape, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "dweight", args.dweight, DType::kFloat32, {1, hidden}, stream.device));
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : aten::Backward(args, stream);
}

}  // namespace sluice::kernels
