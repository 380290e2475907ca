#include "kernels/cross_entropy/cross_entropy.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/cross_entropy/backends.h"
#include "kernels/cross_entropy/pieces.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "cross_entropy";

absl::Status CheckInputs(const CrossEntropyInputs& in, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "hidden", in.hidden, 2, stream));
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "weight", in.weight, 2, stream));
  const Shape weight_shape = {in.weight.dim(0), in.hidden.dim(1)};
  RETURN_IF_ERROR(CheckView(kKernel, "weight", in.weight, in.hidden.dtype, weight_shape, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "labels", in.labels, DType::kInt32, {in.hidden.dim(0)}, stream.device));
  if (in.scored.dim(0) > 0 || !in.scored.empty()) {  // no slot: it may be absent
    RETURN_IF_ERROR(CheckView(kKernel, "scored", in.scored, DType::kInt32, Shape{in.scored.dim(0)}, stream.device));
  }
  if (!(in.temperature > 0)) {
    return InvalidArgument(kKernel, "temperature", absl::StrCat(in.temperature, " is not positive"));
  }
  if (in.logits_bytes <= 0) {
    return InvalidArgument(kKernel, "logits_bytes", absl::StrCat(in.logits_bytes, " is not positive"));
  }
  return CheckScoredSlots(kKernel, in.scored, in.labels, in.hidden.dim(0), in.weight.dim(0));
}

absl::Status CheckPerToken(std::string_view argument, ConstTensorView view, const CrossEntropyInputs& in) {
  return CheckView(kKernel, argument, view, DType::kFloat32, {in.hidden.dim(0)}, in.hidden.device);
}

absl::Status CheckOptionalPerToken(std::string_view argument, ConstTensorView view, const CrossEntropyInputs& in) {
  return view.empty() ? absl::OkStatus() : CheckPerToken(argument, view, in);
}

template <typename Args>
absl::Status CheckGradients(const Args& args) {
  const ConstTensorView hidden = args.in.hidden;
  RETURN_IF_ERROR(CheckPerToken("d_loss", args.d_loss, args.in));
  RETURN_IF_ERROR(CheckView(kKernel, "dhidden", args.dhidden, hidden.dtype, hidden.shape, hidden.device));
  if (args.dweight.empty()) return absl::OkStatus();
  return CheckView(kKernel, "dweight", args.dweight, DType::kFloat32, args.in.weight.shape, hidden.device);
}

}  // namespace

absl::Status Forward(const CrossEntropyForward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInputs(args.in, stream));
  RETURN_IF_ERROR(CheckPerToken("log_prob", args.log_prob, args.in));
  RETURN_IF_ERROR(CheckOptionalPerToken("logsumexp", args.logsumexp, args.in));
  RETURN_IF_ERROR(CheckOptionalPerToken("entropy", args.entropy, args.in));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : cuda::Forward(args, stream);
}

absl::Status Backward(const CrossEntropyBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInputs(args.in, stream));
  RETURN_IF_ERROR(CheckPerToken("logsumexp", args.logsumexp, args.in));
  RETURN_IF_ERROR(CheckOptionalPerToken("d_entropy", args.d_entropy, args.in));
  RETURN_IF_ERROR(CheckOptionalPerToken("entropy", args.entropy, args.in));
  if (args.entropy.empty() != args.d_entropy.empty()) {
    return InvalidArgument(kKernel, "entropy", "and d_entropy belong together: expected both or neither");
  }
  RETURN_IF_ERROR(CheckGradients(args));
  return stream.device.is_cpu() ? cpu::Backward(args, stream) : cuda::Backward(args, stream);
}

absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInputs(args.in, stream));
  RETURN_IF_ERROR(CheckPerToken("log_prob", args.log_prob, args.in));
  RETURN_IF_ERROR(CheckGradients(args));
  return stream.device.is_cpu() ? cpu::ForwardBackward(args, stream) : cuda::ForwardBackward(args, stream);
}

int64_t CrossEntropyWorkspace(int64_t tokens, int64_t hidden_size, int64_t vocab_size, DType dtype,
                              int64_t logits_bytes) {
  return cuda::CrossEntropyPieces(tokens, hidden_size, vocab_size, dtype, logits_bytes).bytes;
}

}  // namespace sluice::kernels
