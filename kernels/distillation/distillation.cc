#include "kernels/distillation/distillation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/distillation/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "distillation";

// What LibTorch holds of a row at the peak, in fp32: two rows of logits, two of log-probabilities, the derivative and
// two temporaries.
constexpr int64_t kRowsHeld = 7;

absl::Status CheckInputs(const DistillationInputs& in, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "hidden", in.hidden, 2, stream));
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "weight", in.weight, 2, stream));
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "teacher_weight", in.teacher_weight, 2, stream));
  const DType dtype = in.hidden.dtype;
  const int64_t tokens = in.hidden.dim(0), vocabulary = in.weight.dim(0), teacher_hidden = in.teacher_weight.dim(1);
  RETURN_IF_ERROR(CheckView(kKernel, "weight", in.weight, dtype, Shape{vocabulary, in.hidden.dim(1)}, stream.device));
  RETURN_IF_ERROR(
      CheckView(kKernel, "teacher_weight", in.teacher_weight, dtype, Shape{vocabulary, teacher_hidden}, stream.device));
  RETURN_IF_ERROR(
      CheckView(kKernel, "teacher_hidden", in.teacher_hidden, dtype, Shape{tokens, teacher_hidden}, stream.device));
  RETURN_IF_ERROR(CheckView(kKernel, "labels", in.labels, DType::kInt32, Shape{tokens}, stream.device));
  if (in.scored.dim(0) > 0 || !in.scored.empty()) {  // no slot: it may be absent
    RETURN_IF_ERROR(CheckView(kKernel, "scored", in.scored, DType::kInt32, Shape{in.scored.dim(0)}, stream.device));
  }
  if (!(in.temperature > 0)) {
    return InvalidArgument(kKernel, "temperature", absl::StrCat(in.temperature, " is not positive"));
  }
  if (in.top_k < 0) return InvalidArgument(kKernel, "top_k", absl::StrCat(in.top_k, " is negative"));
  if (in.logits_bytes <= 0) {
    return InvalidArgument(kKernel, "logits_bytes", absl::StrCat(in.logits_bytes, " is not positive"));
  }
  return CheckScoredSlots(kKernel, in.scored, in.labels, in.hidden.dim(0), in.weight.dim(0));
}

template <typename Args>
absl::Status CheckResults(const Args& args, Stream stream) {
  const Shape shape = {args.in.hidden.dim(0)};
  RETURN_IF_ERROR(CheckView(kKernel, "divergence", args.divergence, DType::kFloat32, shape, stream.device));
  return CheckView(kKernel, "log_prob", args.log_prob, DType::kFloat32, shape, stream.device);
}

}  // namespace

absl::Status Forward(const DistillationForward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInputs(args.in, stream));
  RETURN_IF_ERROR(CheckResults(args, stream));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : aten::Forward(args, stream);
}

absl::Status ForwardBackward(const DistillationForwardBackward& args, Stream stream) {
  RETURN_IF_ERROR(CheckInputs(args.in, stream));
  RETURN_IF_ERROR(CheckResults(args, stream));
  const ConstTensorView hidden = args.in.hidden;
  RETURN_IF_ERROR(CheckView(kKernel, "dhidden", args.dhidden, hidden.dtype, hidden.shape, stream.device));
  if (!args.dweight.empty()) {
    RETURN_IF_ERROR(CheckView(kKernel, "dweight", args.dweight, DType::kFloat32, args.in.weight.shape, stream.device));
  }
  return stream.device.is_cpu() ? cpu::ForwardBackward(args, stream) : aten::ForwardBackward(args, stream);
}

int64_t DistillationPieceRows(int64_t tokens, int64_t vocab_size, int64_t logits_bytes) {
  const int64_t bytes_of_row = kRowsHeld * vocab_size * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(logits_bytes / bytes_of_row, 1, std::max<int64_t>(tokens, 1));
}

int64_t DistillationBytes(int64_t tokens, int64_t hidden_size, int64_t teacher_hidden_size, int64_t vocab_size,
                          int64_t logits_bytes) {
  const int64_t rows = DistillationPieceRows(tokens, vocab_size, logits_bytes);
  const int64_t hidden = 2 * hidden_size + teacher_hidden_size;  // gathered, and the derivative
  return rows * (kRowsHeld * vocab_size + hidden) * static_cast<int64_t>(sizeof(float));
}

}  // namespace sluice::kernels
