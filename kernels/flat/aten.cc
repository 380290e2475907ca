#include <ATen/TensorOperators.h>

#include <algorithm>

#include "common/status_macros.h"
#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/flat/backends.h"

namespace sluice::kernels::aten {
namespace {

// Bounds the double-precision copy of the sum of squares to 128 MiB.
constexpr int64_t kChunk = int64_t{1} << 24;

}  // namespace

absl::StatusOr<double> SumOfSquares(ConstTensorView x, Stream stream) {
  double sum = 0.0;
  RETURN_IF_ERROR(CallAten("sum_of_squares", stream, [&] {
    const at::Tensor all = AsTensor(x);
    at::Tensor total = at::Tensor();
    for (int64_t begin = 0; begin < all.numel(); begin += kChunk) {
      const int64_t count = std::min(kChunk, all.numel() - begin);
      const at::Tensor part = all.narrow(0, begin, count).to(at::kDouble).square_().sum();
      total = total.defined() ? total.add_(part) : part;
    }
    if (total.defined()) sum = total.item<double>();
  }));
  return sum;
}

absl::StatusOr<bool> AllFinite(ConstTensorView x, Stream stream) {
  bool finite = true;
  // 0 * x is NaN exactly where x is not finite, and a sum keeps a NaN: no mask as large as x is made.
  RETURN_IF_ERROR(CallAten("all_finite", stream, [&] { finite = (AsTensor(x) * 0).sum().item<float>() == 0.0f; }));
  return finite;
}

absl::Status Scale(TensorView x, float factor, Stream stream) {
  return CallAten("scale", stream, [&] {
    at::Tensor scaled = AsTensor(x);
    if (x.dtype == DType::kFloat32) {
      scaled.mul_(factor);
    } else {
      scaled.copy_(scaled.to(at::kFloat).mul_(factor));  // LibTorch would round the factor to bf16
    }
  });
}

absl::Status Fill(TensorView x, float value, Stream stream) {
  return CallAten("fill", stream, [&] { AsTensor(x).fill_(value); });
}

absl::Status AddScaled(float alpha, ConstTensorView x, TensorView y, Stream stream) {
  return CallAten("add_scaled", stream, [&] {
    at::Tensor to = AsTensor(y);
    if (y.dtype == DType::kFloat32) {
      to.add_(AsTensor(x).to(at::kFloat), alpha);
    } else {
      to.copy_(to.to(at::kFloat).add_(AsTensor(x).to(at::kFloat), alpha));
    }
  });
}

absl::Status Cast(ConstTensorView from, TensorView to, Stream stream) {
  return CallAten("cast", stream, [&] { AsTensor(to).copy_(AsTensor(from)); });
}

}  // namespace sluice::kernels::aten
