#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/bias/backends.h"

namespace sluice::kernels::aten {

absl::Status Forward(const BiasForward& args, Stream stream) {
  return CallAten("bias", stream, [&] { AsTensor(args.y).add_(AsTensor(args.bias)); });
}

absl::Status Backward(const BiasBackward& args, Stream stream) {
  return CallAten("bias", stream,
                  [&] { AsTensor(args.dbias).add_(AsTensor(args.dy).sum(0, /*keepdim=*/false, at::kFloat)); });
}

}  // namespace sluice::kernels::aten
