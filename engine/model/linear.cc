#include "engine/model/linear.h"

#include "common/status_macros.h"
#include "kernels/bias/bias.h"
#include "kernels/matmul/matmul.h"

namespace sluice::engine {

absl::Status LinearForward(kernels::ConstTensorView x, kernels::ConstTensorView weight, kernels::ConstTensorView bias,
                           kernels::TensorView y, kernels::Stream stream) {
  return kernels::Run(kernels::MatMul{.a = x, .b = weight, .transpose_b = true, .c = y, .bias = bias}, stream);
}

absl::Status LinearInputGradient(kernels::ConstTensorView dy, kernels::ConstTensorView weight, kernels::TensorView dx,
                                 kernels::Stream stream) {
  return kernels::Run(kernels::MatMul{.a = dy, .b = weight, .c = dx}, stream);
}

absl::Status Run(const LinearWeightGradient& args, kernels::Stream stream) {
  RETURN_IF_ERROR(kernels::Run(
      kernels::MatMul{
          .a = args.dy, .transpose_a = true, .b = args.x, .c = args.dweight, .beta = args.accumulate ? 1.0f : 0.0f},
      stream));
  if (args.dbias.empty()) return absl::OkStatus();
  return kernels::Backward(kernels::BiasBackward{.dy = args.dy, .dbias = args.dbias}, stream);
}

}  // namespace sluice::engine
