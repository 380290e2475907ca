#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/matmul/backends.h"

namespace sluice::kernels::aten {

absl::Status Run(const MatMul& args, Stream stream) {
  return CallAten("matmul", stream, [&] {
    at::Tensor a = args.transpose_a ? AsTensor(args.a).t() : AsTensor(args.a);
    at::Tensor b = args.transpose_b ? AsTensor(args.b).t() : AsTensor(args.b);
    at::Tensor c = AsTensor(args.c);
    const bool widens = args.c.dtype != args.a.dtype;
    if (widens && args.c.device.is_cuda()) {
      // cuBLAS multiplies bf16 into an fp32 result; LibTorch offers it for CUDA only.
      if (args.beta == 0.0f && args.alpha == 1.0f) {
        at::mm_out(c, a, b, at::kFloat);
      } else if (args.beta == 0.0f) {
        at::mm_out(c, a, b, at::kFloat);
        c.mul_(args.alpha);
      } else {
        at::addmm_out(c, c, a, b, at::kFloat, args.beta, args.alpha);
      }
      return;
    }
    // LibTorch's CPU product in bf16 rounds its partial sums, so there the operands are widened first.
    const bool round_last = args.c.device.is_cpu() && args.c.dtype == DType::kBFloat16;
    if (widens || round_last) {
      a = a.to(at::kFloat);
      b = b.to(at::kFloat);
    }
    if (round_last) {
      at::Tensor product = at::mm(a, b).mul_(args.alpha);
      if (args.beta != 0.0f) product.add_(c.to(at::kFloat), args.beta);
      c.copy_(product);
    } else if (args.beta == 0.0f && args.alpha == 1.0f) {
      at::mm_out(c, a, b);
    } else {
      at::addmm_out(c, c, a, b, args.beta, args.alpha);  // beta 0 ignores c, NaN included
    }
  });
}

}  // namespace sluice::kernels::aten
