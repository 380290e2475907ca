#include "kernels/cross_entropy/cross_entropy.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/cross_entropy/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "cross_entropy";

absl::Status CheckLabels(ConstTensorView labels, int64_t vocabulary) {
  if (!labels.device.is_cpu()) return absl::OkStatus();
  for (int64_t slot = 0; slot < labels.dim(0); ++slot) {
    const int32_t label = labels.as<int32_t>()[slot];
    if (label != kIgnoredLabel && (label < 0 || label >= vocabulary)) {
      return InvalidArgument(kKernel, "labels",
                             absl::StrCat("slot ", slot, " holds ", label, ", the vocabulary has ", vocabulary));
    }
  }
  return absl::OkStatus();
}

// The arguments that all three calls have under the same names.
template <typename Args>
absl::Status CheckInputs(const Args& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "hidden", args.hidden, 2, stream));
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "weight", args.weight, 2, stream));
  const Shape weight_shape = {args.weight.dim(0), args.hidden.dim(1)};
  RETURN_IF_ERROR(CheckView(kKernel, "weight", args.weight, args.hidden.dtype, weight_shape, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "labels", args.labels, DType::kInt32, {args.hidden.dim(0)}, stream.device));
  if (!(args.temperature > 0)) {
    return InvalidArgument(kKernel, "temperature", absl::StrCat(args.temperature, " is not positive"));
  }
  if (args.logits_bytes <= 0) {
    return InvalidArgument(kKernel, "logits_bytes", absl::StrCat(args.logits_bytes, " is not positive"));
  }
  return CheckLabels(args.labels, args.weight.dim(0));
}

enum class Presence : uint8_t { kRequired, kOptional };

absl::Status CheckPerToken(std::string_view argument, ConstTensorView view, ConstTensorView hidden,
                           Presence presence = Presence::kRequired) {
  if (view.empty() && presence == Presence::kOptional) return absl::OkStatus();
  return CheckView(kKernel, argument, view, DType::kFloat32, {hidden.dim(0)}, hidden.device);
}

template <typename Args>
absl::Status CheckGradients(const Args& args) {
  RETURN_IF_ERROR(CheckPerToken("d_loss", args.d_loss, args.hidden));
  RETURN_IF_ERROR(
      CheckView(kKernel, "dhidden", args.dhidden, args.hidden.dtype, args.hidden.shape, args.hidden.device));
  if (args.dweight.empty()) return absl::OkStatus();
  return CheckView(kKernel, "dweight", args.dweight, DType::kFloat32, args.weight.shape, args.hidden.device);
}

}  // namespace

absl::Status Forward(const CrossEntropyForward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInputs(args, stream));
  RETURN_IF_ERROR(CheckPerToken("log_prob", args.log_prob, args.hidden));
  RETURN_IF_ERROR(CheckPerToken("loss", args.loss, args.hidden, Presence::kOptional));
  RETURN_IF_ERROR(CheckPerToken("logsumexp", args.logsumexp, args.hidden, Presence::kOptional));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : aten::Forward(args, stream);
}

absl::Status Backward(const CrossEntropyBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInputs(args, stream));
  RETURN_IF_ERROR(CheckPerToken("logsumexp", args.logsumexp, args.hidden));
  RETURN_IF_ERROR(CheckGradients(args));
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : aten::Backward(args, stream);
}

absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInputs(args, stream));
  RETURN_IF_ERROR(CheckPerToken("log_prob", args.log_prob, args.hidden));
  RETURN_IF_ERROR(CheckPerToken("loss", args.loss, args.hidden, Presence::kOptional));
  RETURN_IF_ERROR(CheckGradients(args));
  return stream.device.is_cpu() ? cpu::ForwardBackward(args, stream) : aten::ForwardBackward(args, stream);
}

}  // namespace sluice::kernels
