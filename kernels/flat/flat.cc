#include "kernels/flat/flat.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/flat/backends.h"

namespace sluice::kernels {
namespace {

absl::Status CheckFloating(std::string_view kernel, std::string_view argument, ConstTensorView view, Stream stream) {
  return CheckLeadingView(kernel, argument, view, view.shape.rank(), stream);
}

absl::Status CheckSum(std::string_view kernel, ConstTensorView sum, Stream stream) {
  return CheckView(kernel, "sum", sum, DType::kFloat64, Shape{1}, stream.device);
}

template <typename Data>
BasicTensorView<Data> Flat(BasicTensorView<Data> view) {
  return view.Reshaped({view.elements()});
}

}  // namespace

absl::Status SumOfSquares(ConstTensorView x, TensorView sum, Stream stream) {
  RETURN_IF_ERROR(CheckFloating("sum_of_squares", "x", x, stream));
  RETURN_IF_ERROR(CheckSum("sum_of_squares", sum, stream));
  return stream.device.is_cpu() ? cpu::SumOfSquares(Flat(x), sum, stream) : cuda::SumOfSquares(Flat(x), sum, stream);
}

absl::Status AddSum(ConstTensorView x, double factor, TensorView sum, Stream stream) {
  RETURN_IF_ERROR(CheckView("add_sum", "x", x, DType::kFloat32, x.shape, stream.device));
  RETURN_IF_ERROR(CheckSum("add_sum", sum, stream));
  return stream.device.is_cpu() ? cpu::AddSum(Flat(x), factor, sum, stream)
                                : cuda::AddSum(Flat(x), factor, sum, stream);
}

absl::Status Fill(TensorView x, double value, Stream stream) {
  if (x.dtype == DType::kFloat64) {
    RETURN_IF_ERROR(CheckView("fill", "x", x, DType::kFloat64, x.shape, stream.device));
  } else {
    RETURN_IF_ERROR(CheckFloating("fill", "x", x, stream));
  }
  return stream.device.is_cpu() ? cpu::Fill(Flat(x), value, stream) : cuda::Fill(Flat(x), value, stream);
}

absl::Status Cast(ConstTensorView from, TensorView to, Stream stream) {
  RETURN_IF_ERROR(CheckFloating("cast", "from", from, stream));
  RETURN_IF_ERROR(CheckFloating("cast", "to", to, stream));
  // Shapes may differ, element counts may not.
  if (from.elements() != to.elements()) {
    return InvalidArgument("cast", "to", absl::StrCat("has ", to.elements(), " elements, expected ", from.elements()));
  }
  return stream.device.is_cpu() ? cpu::Cast(Flat(from), Flat(to), stream) : cuda::Cast(Flat(from), Flat(to), stream);
}

}  // namespace sluice::kernels
