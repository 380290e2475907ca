#include "kernels/check.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::kernels {
namespace {

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

std::string Describe(DType dtype, const Shape& shape, Device device) {
  return absl::StrCat(Text(Name(dtype)), " ", ToString(shape), " on ", Name(device));
}

std::string Describe(const ConstTensorView& view) {
  if (view.empty()) return "nothing";
  return absl::StrCat(Describe(view.dtype, view.shape, view.device),
                      view.dense() ? "" : absl::StrCat(" with row stride ", view.row_stride));
}

}  // namespace

absl::Status InvalidArgument(std::string_view kernel, std::string_view argument, std::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(Text(kernel), ": ", Text(argument), ": ", Text(problem)));
}

absl::Status CheckView(std::string_view kernel, std::string_view argument, ConstTensorView view, DType dtype,
                       const Shape& shape, Device device, Layout layout) {
  const bool layout_fits =
      layout == Layout::kDense ? view.dense() : view.row_stride >= view.shape.row_elements() || view.dim(0) <= 1;
  if (!view.empty() && view.dtype == dtype && view.shape == shape && view.device == device && layout_fits) {
    return absl::OkStatus();
  }
  return InvalidArgument(kernel, argument,
                         absl::StrCat("expected ", Describe(dtype, shape, device), ", got ", Describe(view)));
}

absl::Status CheckLeadingView(std::string_view kernel, std::string_view argument, ConstTensorView view, int rank,
                              Stream stream, Layout layout) {
  if (view.empty() || !IsFloating(view.dtype) || view.shape.rank() != rank) {
    return InvalidArgument(kernel, argument,
                           absl::StrCat("expected bf16 or fp32 of rank ", rank, ", got ", Describe(view)));
  }
  return CheckView(kernel, argument, view, view.dtype, view.shape, stream.device, layout);
}

absl::Status CheckScoredSlots(std::string_view kernel, ConstTensorView scored, ConstTensorView labels, int64_t tokens,
                              int64_t vocabulary) {
  if (!scored.device.is_cpu()) return absl::OkStatus();
  int64_t previous = -1;
  for (int64_t i = 0; i < scored.dim(0); ++i) {
    const int64_t slot = scored.as<int32_t>()[i];
    if (slot <= previous || slot >= tokens) {
      return InvalidArgument(
          kernel, "scored",
          absl::StrCat("slot ", slot, " after slot ", previous, ": expected ascending ones below ", tokens));
    }
    previous = slot;
    const int32_t label = labels.as<int32_t>()[slot];
    if (label < 0 || label >= vocabulary) {
      return InvalidArgument(kernel, "labels",
                             absl::StrCat("slot ", slot, " holds ", label, ", the vocabulary has ", vocabulary));
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels
