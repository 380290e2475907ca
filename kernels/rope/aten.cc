#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/rope/backends.h"

namespace sluice::kernels::aten {
namespace {

void Rotate(at::Tensor heads, const at::Tensor& cosines, const at::Tensor& sines) {
  const int64_t half = heads.size(2) / 2;
  const at::Tensor first = heads.narrow(2, 0, half).to(at::kFloat);
  const at::Tensor second = heads.narrow(2, half, half).to(at::kFloat);
  heads.copy_(at::cat({first * cosines - second * sines, second * cosines + first * sines}, 2));
}

absl::Status RotateBoth(const Rope& args, Stream stream, double direction) {
  return CallAten("rope", stream, [&] {
    const at::Tensor angles =
        AsTensor(args.positions).to(at::kFloat).unsqueeze(1) * AsTensor(args.inv_freq).unsqueeze(0);
    const at::Tensor cosines = (angles.cos() * args.attention_scaling).unsqueeze(1);
    const at::Tensor sines = (angles.sin() * args.attention_scaling * direction).unsqueeze(1);
    Rotate(AsTensor(args.q), cosines, sines);
    if (!args.k.empty()) Rotate(AsTensor(args.k), cosines, sines);
  });
}

}  // namespace

absl::Status Forward(const Rope& args, Stream stream) { return RotateBoth(args, stream, 1.0); }

absl::Status Backward(const Rope& args, Stream stream) { return RotateBoth(args, stream, -1.0); }

}  // namespace sluice::kernels::aten
