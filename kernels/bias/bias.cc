#include "kernels/bias/bias.h"

#include "common/status_macros.h"
#include "kernels/bias/backends.h"
#include "kernels/check.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "bias";

}  // namespace

absl::Status Backward(const BiasBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "dy", args.dy, 2, stream, Layout::kStrided));
  RETURN_IF_ERROR(CheckView(kKernel, "dbias", args.dbias, DType::kFloat32, {args.dy.dim(1)}, stream.device));
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : cuda::Backward(args, stream);
}

}  // namespace sluice::kernels
