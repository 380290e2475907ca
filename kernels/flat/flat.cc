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

// Shapes may differ, element counts may not.
absl::Status CheckPair(std::string_view kernel, std::string_view first_name, ConstTensorView first,
                       std::string_view second_name, ConstTensorView second, Stream stream) {
  RETURN_IF_ERROR(CheckFloating(kernel, first_name, first, stream));
  RETURN_IF_ERROR(CheckFloating(kernel, second_name, second, stream));
  if (first.elements() == second.elements()) return absl::OkStatus();
  return InvalidArgument(kernel, second_name,
                         absl::StrCat("has ", second.elements(), " elements, expected ", first.elements()));
}

template <typename Data>
BasicTensorView<Data> Flat(BasicTensorView<Data> view) {
  return view.Reshaped({view.elements()});
}

}  // namespace

absl::StatusOr<double> SumOfSquares(ConstTensorView x, Stream stream) {
  RETURN_IF_ERROR(CheckFloating("sum_of_squares", "x", x, stream));
  return stream.device.is_cpu() ? cpu::SumOfSquares(Flat(x), stream) : aten::SumOfSquares(Flat(x), stream);
}

absl::StatusOr<bool> AllFinite(ConstTensorView x, Stream stream) {
  RETURN_IF_ERROR(CheckFloating("all_finite", "x", x, stream));
  return stream.device.is_cpu() ? cpu::AllFinite(Flat(x), stream) : aten::AllFinite(Flat(x), stream);
}

absl::Status Scale(TensorView x, float factor, Stream stream) {
  RETURN_IF_ERROR(CheckFloating("scale", "x", x, stream));
  return stream.device.is_cpu() ? cpu::Scale(Flat(x), factor, stream) : aten::Scale(Flat(x), factor, stream);
}

absl::Status Fill(TensorView x, float value, Stream stream) {
  RETURN_IF_ERROR(CheckFloating("fill", "x", x, stream));
  return stream.device.is_cpu() ? cpu::Fill(Flat(x), value, stream) : aten::Fill(Flat(x), value, stream);
}

absl::Status AddScaled(float alpha, ConstTensorView x, TensorView y, Stream stream) {
  RETURN_IF_ERROR(CheckPair("add_scaled", "x", x, "y", y, stream));
  return stream.device.is_cpu() ? cpu::AddScaled(alpha, Flat(x), Flat(y), stream)
                                : aten::AddScaled(alpha, Flat(x), Flat(y), stream);
}

absl::Status Cast(ConstTensorView from, TensorView to, Stream stream) {
  RETURN_IF_ERROR(CheckPair("cast", "from", from, "to", to, stream));
  return stream.device.is_cpu() ? cpu::Cast(Flat(from), Flat(to), stream) : aten::Cast(Flat(from), Flat(to), stream);
}

}  // namespace sluice::kernels
