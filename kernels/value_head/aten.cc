#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/value_head/backends.h"

namespace sluice::kernels::aten {

absl::Status Forward(const ValueHeadForward& args, Stream stream) {
  return CallAten("value_head", stream, [&] {
    const at::Tensor weight = AsTensor(args.weight).to(at::kFloat).view({args.weight.dim(1)});
    AsTensor(args.value).copy_(at::matmul(AsTensor(args.hidden).to(at::kFloat), weight));
  });
}

absl::Status Backward(const ValueHeadBackward& args, Stream stream) {
  return CallAten("value_head", stream, [&] {
    const at::Tensor d_value = AsTensor(args.d_value);
    const at::Tensor dweight = AsTensor(args.dweight);
    // First: dhidden may take hidden's place.
    const at::Tensor product = at::matmul(d_value.unsqueeze(0), AsTensor(args.hidden).to(at::kFloat));
    if (args.accumulate_dweight) {
      dweight.add_(product);
    } else {
      dweight.copy_(product);
    }
    AsTensor(args.dhidden).copy_(at::mul(d_value.unsqueeze(1), AsTensor(args.weight).to(at::kFloat)));
  });
}

}  // namespace sluice::kernels::aten
