#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "common/status_macros.h"
#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/distillation/backends.h"
#include "kernels/matmul/matmul.h"

namespace sluice::kernels::aten {
namespace {

constexpr double kLeastRest = 1e-30;  // as in cpu.cc

// Of a piece: the divergence of each row, not yet times temperature^2, and its derivative by z / temperature.
struct PieceDivergence {
  at::Tensor value;     // [rows]
  at::Tensor gradient;  // [rows, V]; undefined where it is not wanted
};

PieceDivergence Whole(Divergence divergence, const at::Tensor& log_q, const at::Tensor& log_p, bool with_gradient) {
  PieceDivergence result;
  if (divergence == Divergence::kForwardKl) {
    const at::Tensor p = log_p.exp();
    result.value = (p * (log_p - log_q)).sum(-1);
    if (with_gradient) result.gradient = log_q.exp().sub_(p);
  } else {
    const at::Tensor q = log_q.exp();
    at::Tensor difference = log_q - log_p;
    result.value = (q * difference).sum(-1);
    if (with_gradient) result.gradient = difference.sub_(result.value.unsqueeze(-1)).mul_(q);
  }
  return result;
}

PieceDivergence Listed(Divergence divergence, int64_t top_k, const at::Tensor& log_q, const at::Tensor& log_p,
                       bool with_gradient) {
  const auto ids = std::get<1>(log_p.topk(top_k, -1, /*largest=*/true, /*sorted=*/false));
  const at::Tensor is_listed = at::zeros_like(log_p, log_p.options().dtype(at::kBool)).scatter_(-1, ids, true);
  const at::Tensor q = log_q.exp();
  // The others, added up themselves: 1 less the listed ones would be all rounding where they are few.
  const at::Tensor rest_q = q.masked_fill(is_listed, 0).sum(-1, /*keepdim=*/true).clamp_min_(kLeastRest);
  const at::Tensor rest_p = log_p.exp().masked_fill_(is_listed, 0).sum(-1, /*keepdim=*/true).clamp_min_(kLeastRest);
  const at::Tensor log_ratio = (rest_q / rest_p).log();
  const at::Tensor listed_q = log_q.gather(-1, ids), listed_p = log_p.gather(-1, ids);
  PieceDivergence result;
  if (divergence == Divergence::kForwardKl) {
    const at::Tensor listed = (listed_p.exp() * (listed_p - listed_q)).sum(-1, /*keepdim=*/true);
    result.value = (listed - rest_p * log_ratio).squeeze(-1);
    if (with_gradient) result.gradient = q - at::where(is_listed, log_p.exp(), q * (rest_p / rest_q));
  } else {
    const at::Tensor listed = (listed_q.exp() * (listed_q - listed_p)).sum(-1, /*keepdim=*/true);
    const at::Tensor value = listed + rest_q * log_ratio;
    result.value = value.squeeze(-1);
    if (with_gradient) result.gradient = at::where(is_listed, log_q - log_p, log_ratio).sub_(value).mul_(q);
  }
  return result;
}

ConstTensorView ViewOf(const at::Tensor& tensor, DType dtype, Device device) {
  return ConstTensorView(tensor.data_ptr(), dtype, {tensor.size(0), tensor.size(1)}, device);
}

// states [rows, width] times weight [V, width], transposed; in fp32, also of bf16.
absl::StatusOr<at::Tensor> Logits(const at::Tensor& states, ConstTensorView weight, Stream stream) {
  const at::Tensor logits = at::empty({states.size(0), weight.dim(0)}, states.options().dtype(at::kFloat));
  RETURN_IF_ERROR(
      Run(MatMul{.a = ViewOf(states, weight.dtype, stream.device),
                 .b = weight,
                 .transpose_b = true,
                 .c = TensorView(logits.data_ptr(), DType::kFloat32, {logits.size(0), logits.size(1)}, stream.device)},
          stream));
  return logits;
}

// dhidden at `slots` and dweight from dz [rows, V].
absl::Status Propagate(const DistillationForwardBackward& args, const at::Tensor& slots, const at::Tensor& states,
                       const at::Tensor& dz, bool first, Stream stream) {
  const DType dtype = args.in.weight.dtype;
  const at::Tensor dhidden = at::empty_like(states);
  RETURN_IF_ERROR(
      Run(MatMul{.a = ViewOf(dz, dtype, stream.device),
                 .b = args.in.weight,
                 .c = TensorView(dhidden.data_ptr(), dtype, {dhidden.size(0), dhidden.size(1)}, stream.device)},
          stream));
  AsTensor(args.dhidden).index_copy_(0, slots, dhidden);
  if (args.dweight.empty()) return absl::OkStatus();
  return Run(MatMul{.a = ViewOf(dz, dtype, stream.device),
                    .transpose_a = true,
                    .b = ViewOf(states, dtype, stream.device),
                    .c = args.dweight,
                    .beta = first && !args.accumulate_dweight ? 0.0f : 1.0f},
             stream);
}

// With `backward` null there are no derivatives.
absl::Status Compute(const DistillationInputs& in, TensorView divergence_view, TensorView log_prob_view,
                     const DistillationForwardBackward* backward, Stream stream) {
  const at::Tensor divergence = AsTensor(divergence_view).zero_(), log_prob = AsTensor(log_prob_view).zero_();
  const int64_t total = in.scored.dim(0), vocabulary = in.weight.dim(0);
  const bool whole = in.top_k == 0 || in.top_k >= vocabulary;
  const at::Tensor scored = total == 0 ? at::Tensor() : AsTensor(in.scored).to(at::kLong);
  // dhidden may be hidden: what is read of it is copied before anything is written.
  const at::Tensor hidden = total == 0 ? at::Tensor() : AsTensor(in.hidden).index_select(0, scored);
  if (backward != nullptr) {
    AsTensor(backward->dhidden).zero_();
    if (total == 0 && !backward->dweight.empty() && !backward->accumulate_dweight) {
      AsTensor(backward->dweight).zero_();
    }
  }
  if (total == 0) return absl::OkStatus();
  const double temperature = in.temperature;
  const int64_t rows = DistillationPieceRows(total, vocabulary, in.logits_bytes);
  for (int64_t first = 0; first < total; first += rows) {
    const int64_t count = std::min(rows, total - first);
    const at::Tensor slots = scored.narrow(0, first, count), states = hidden.narrow(0, first, count);
    const at::Tensor labels = AsTensor(in.labels).index_select(0, slots).to(at::kLong).unsqueeze(-1);
    ASSIGN_OR_RETURN(const at::Tensor logits, Logits(states, in.weight, stream));
    ASSIGN_OR_RETURN(at::Tensor teacher_logits,
                     Logits(AsTensor(in.teacher_hidden).index_select(0, slots), in.teacher_weight, stream));
    const at::Tensor log_q = at::log_softmax(logits / temperature, -1);
    const at::Tensor log_p = at::log_softmax(teacher_logits.div_(temperature), -1);
    teacher_logits.reset();
    const at::Tensor log_probs = in.temperature == 1.0f ? log_q : at::log_softmax(logits, -1);
    log_prob.index_copy_(0, slots, log_probs.gather(-1, labels).squeeze(-1));
    const bool with_gradient = backward != nullptr;
    PieceDivergence piece = whole ? Whole(in.divergence, log_q, log_p, with_gradient)
                                  : Listed(in.divergence, in.top_k, log_q, log_p, with_gradient);
    divergence.index_copy_(0, slots, piece.value * (temperature * temperature));
    if (!with_gradient) continue;
    at::Tensor dz = piece.gradient.mul_(backward->d_divergence * temperature);
    if (backward->d_nll != 0.0f) {
      dz.add_(log_probs.exp(), backward->d_nll);
      dz.scatter_add_(-1, labels, at::zeros_like(labels, dz.options()).sub_(backward->d_nll));
    }
    RETURN_IF_ERROR(Propagate(*backward, slots, states, dz.to(ScalarTypeOf(in.weight.dtype)), first == 0, stream));
  }
  return absl::OkStatus();
}

absl::Status Guarded(const DistillationInputs& in, TensorView divergence, TensorView log_prob,
                     const DistillationForwardBackward* backward, Stream stream) {
  absl::Status computed;
  RETURN_IF_ERROR(
      CallAten("distillation", stream, [&] { computed = Compute(in, divergence, log_prob, backward, stream); }));
  return computed;
}

}  // namespace

absl::Status Forward(const DistillationForward& args, Stream stream) {
  return Guarded(args.in, args.divergence, args.log_prob, /*backward=*/nullptr, stream);
}

absl::Status ForwardBackward(const DistillationForwardBackward& args, Stream stream) {
  return Guarded(args.in, args.divergence, args.log_prob, &args, stream);
}

}  // namespace sluice::kernels::aten
