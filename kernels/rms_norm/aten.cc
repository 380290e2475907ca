#include <ATen/TensorOperators.h>

#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/rms_norm/backends.h"

namespace sluice::kernels::aten {

absl::Status Forward(const RmsNormForward& args, Stream stream) {
  return CallAten("rms_norm", stream, [&] {
    at::Tensor r = AsTensor(args.x);
    if (!args.residual.empty()) {
      at::Tensor residual_out = AsTensor(args.residual_out);
      residual_out.copy_(r.to(at::kFloat) + AsTensor(args.residual).to(at::kFloat));
      r = residual_out;
    }
    const at::Tensor wide = r.to(at::kFloat);
    const at::Tensor rstd = (wide.square().mean(-1) + args.eps).rsqrt();
    AsTensor(args.rstd).copy_(rstd);
    AsTensor(args.y).copy_(wide * rstd.unsqueeze(-1) * AsTensor(args.weight).to(at::kFloat));
  });
}

absl::Status Backward(const RmsNormBackward& args, Stream stream) {
  return CallAten("rms_norm", stream, [&] {
    const at::Tensor dy = AsTensor(args.dy).to(at::kFloat);
    const at::Tensor rstd = AsTensor(args.rstd).unsqueeze(-1);
    const at::Tensor normalised = AsTensor(args.r).to(at::kFloat) * rstd;
    const at::Tensor g = dy * AsTensor(args.weight).to(at::kFloat);
    at::Tensor dr = AsTensor(args.dr);
    dr.copy_(dr.to(at::kFloat) + rstd * (g - normalised * (g * normalised).mean(-1, /*keepdim=*/true)));
    if (args.dweight.empty()) return;
    const int64_t hidden = args.r.dim(args.r.shape.rank() - 1);
    AsTensor(args.dweight).add_((dy * normalised).reshape({-1, hidden}).sum(0));
  });
}

}  // namespace sluice::kernels::aten
