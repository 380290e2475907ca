#include "engine/model/linear.h"

#include "common/status_macros.h"
#include "kernels/bias/bias.h"
#include "kernels/matmul/matmul.h"

namespace sluice::engine {

absl::Status LinearForward(kernels::ConstTensorView x, kernels::ConstTensorView weight, kernels::ConstTensorView bias,
                           kernels::TensorView y, kernels::Stream stream) {
  RETURN_IF_ERROR(kernels::Run(kernels::MatMul{.a = x, .b = weight, .transpose_b = true, .c = y}, stream));
  if (bias.empty()) return absl::OkStatus();
  return kernels::Forward(kernels::BiasForward{.bias = bias, .y = y}, stream);
}

absl::Status Run(const LinearBackward& args, kernels::Stream stream) {
  RETURN_IF_ERROR(kernels::Run(
      kernels::MatMul{.a = args.dy, .transpose_a = true, .b = args.x, .c = args.dweight, .beta = 1.0f}, stream));
  if (!args.dbias.empty()) {
    RETURN_IF_ERROR(kernels::Backward(kernels::BiasBackward{.dy = args.dy, .dbias = args.dbias}, stream));
  }
  return kernels::Run(kernels::MatMul{.a = args.dy, .b = args.weight, .c = args.dx}, stream);
}

}  // namespace sluice::engine
