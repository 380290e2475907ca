#include <ATen/TensorOperators.h>

#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/swiglu/backends.h"

namespace sluice::kernels::aten {

absl::Status Forward(const SwigluForward& args, Stream stream) {
  return CallAten("swiglu", stream, [&] {
    const at::Tensor wide = AsTensor(args.gate_up).to(at::kFloat);
    const int64_t size = args.y.dim(1);
    const at::Tensor gate = wide.narrow(1, 0, size);
    AsTensor(args.y).copy_(gate * gate.sigmoid() * wide.narrow(1, size, size));
  });
}

absl::Status Backward(const SwigluBackward& args, Stream stream) {
  return CallAten("swiglu", stream, [&] {
    const int64_t size = args.dy.dim(1);
    // Copied, because the result may take the place of gate_up.
    const at::Tensor wide = AsTensor(args.gate_up).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    const at::Tensor gate = wide.narrow(1, 0, size);
    const at::Tensor up = wide.narrow(1, size, size);
    const at::Tensor dy = AsTensor(args.dy).to(at::kFloat);
    const at::Tensor sigmoid = gate.sigmoid();
    at::Tensor dgate_up = AsTensor(args.dgate_up);
    dgate_up.narrow(1, 0, size).copy_(dy * up * sigmoid * (1 + gate * (1 - sigmoid)));
    dgate_up.narrow(1, size, size).copy_(dy * gate * sigmoid);
  });
}

}  // namespace sluice::kernels::aten
