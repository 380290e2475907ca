#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>

#include "common/status_macros.h"
#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/cross_entropy/backends.h"
#include "kernels/matmul/backends.h"

namespace sluice::kernels::aten {
namespace {

void Zero(TensorView view) {
  if (!view.empty()) AsTensor(view).zero_();
}

// A dense tensor of ours as a view, for the matmul kernel.
TensorView ViewOf(const at::Tensor& matrix, DType dtype, Device device) {
  return TensorView(matrix.data_ptr(), dtype, {matrix.size(0), matrix.size(1)}, device);
}

struct Chunk {
  at::Tensor slots;   // [rows] int64
  at::Tensor labels;  // [rows, 1] int64
  at::Tensor hidden;  // [rows, H]
  at::Tensor logits;  // [rows, V] fp32, divided by the temperature
};

// Calls body(chunk) -> Status for the slots of `mask`, a chunk at a time. REQUIRES: inside CallAten.
template <typename Args, typename Body>
absl::Status ForEachChunk(const Args& args, Stream stream, const at::Tensor& mask, Body body) {
  const at::Tensor all = at::nonzero(mask).squeeze(1);
  const at::Tensor hidden = AsTensor(args.hidden);
  const at::Tensor labels = AsTensor(args.labels).to(at::kLong).unsqueeze(1);
  const int64_t vocabulary = args.weight.dim(0);
  const int64_t total = all.size(0);
  const int64_t fit = std::max<int64_t>(args.logits_bytes / (vocabulary * static_cast<int64_t>(sizeof(float))), 1);
  for (int64_t first = 0; first < total; first += fit) {
    Chunk chunk;
    chunk.slots = all.narrow(0, first, std::min(fit, total - first));
    chunk.labels = labels.index_select(0, chunk.slots);
    chunk.hidden = hidden.index_select(0, chunk.slots);
    chunk.logits = hidden.new_empty({chunk.slots.size(0), vocabulary}, at::kFloat);
    const Device device = args.hidden.device;
    RETURN_IF_ERROR(aten::Run(MatMul{.a = ViewOf(chunk.hidden, args.hidden.dtype, device),
                                     .b = args.weight,
                                     .transpose_b = true,
                                     .c = ViewOf(chunk.logits, DType::kFloat32, device)},
                              stream));
    chunk.logits.div_(args.temperature);
    RETURN_IF_ERROR(body(chunk));
  }
  return absl::OkStatus();
}

// Sets log_prob and loss of the chunk's slots; returns their logsumexp [rows].
template <typename Args>
at::Tensor ScoreChunk(const Args& args, const Chunk& chunk) {
  const at::Tensor logsumexp = at::logsumexp(chunk.logits, 1);
  const at::Tensor log_prob = chunk.logits.gather(1, chunk.labels).squeeze(1) - logsumexp;
  AsTensor(args.log_prob).index_copy_(0, chunk.slots, log_prob);
  if (!args.loss.empty()) AsTensor(args.loss).index_copy_(0, chunk.slots, -log_prob);
  return logsumexp;
}

// Turns the logits into dlogits and adds what follows from them to dhidden and dweight.
template <typename Args>
absl::Status PropagateChunk(const Args& args, Stream stream, const Chunk& chunk, const at::Tensor& logsumexp) {
  const at::Tensor factor = AsTensor(args.d_loss).index_select(0, chunk.slots).div_(args.temperature).unsqueeze(1);
  at::Tensor dlogits = chunk.logits;
  dlogits.sub_(logsumexp.unsqueeze(1)).exp_().mul_(factor);
  dlogits.scatter_add_(1, chunk.labels, -factor);
  const DType dtype = args.hidden.dtype;
  const Device device = args.hidden.device;
  const at::Tensor rounded = dlogits.to(ScalarTypeOf(dtype));
  const at::Tensor dhidden = chunk.hidden.new_empty(chunk.hidden.sizes());
  RETURN_IF_ERROR(aten::Run(
      MatMul{.a = ViewOf(rounded, dtype, device), .b = args.weight, .c = ViewOf(dhidden, dtype, device)}, stream));
  AsTensor(args.dhidden).index_copy_(0, chunk.slots, dhidden);
  if (args.dweight.empty()) return absl::OkStatus();
  return aten::Run(MatMul{.a = ViewOf(rounded, dtype, device),
                          .transpose_a = true,
                          .b = ViewOf(chunk.hidden, dtype, device),
                          .c = args.dweight,
                          .beta = 1.0f},
                   stream);
}

// CallAten for a body that can fail by itself.
template <typename Body>
absl::Status Call(Stream stream, Body body) {
  absl::Status status;
  RETURN_IF_ERROR(CallAten("cross_entropy", stream, [&] { status = body(); }));
  return status;
}

}  // namespace

absl::Status Forward(const CrossEntropyForward& args, Stream stream) {
  return Call(stream, [&] {
    Zero(args.log_prob);
    Zero(args.loss);
    Zero(args.logsumexp);
    const at::Tensor mask = AsTensor(args.labels) != kIgnoredLabel;
    return ForEachChunk(args, stream, mask, [&](const Chunk& chunk) {
      const at::Tensor logsumexp = ScoreChunk(args, chunk);
      if (!args.logsumexp.empty()) AsTensor(args.logsumexp).index_copy_(0, chunk.slots, logsumexp);
      return absl::OkStatus();
    });
  });
}

absl::Status Backward(const CrossEntropyBackward& args, Stream stream) {
  return Call(stream, [&] {
    Zero(args.dhidden);
    const at::Tensor mask = (AsTensor(args.labels) != kIgnoredLabel).logical_and(AsTensor(args.d_loss) != 0);
    return ForEachChunk(args, stream, mask, [&](const Chunk& chunk) {
      return PropagateChunk(args, stream, chunk, AsTensor(args.logsumexp).index_select(0, chunk.slots));
    });
  });
}

absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream) {
  return Call(stream, [&] {
    Zero(args.log_prob);
    Zero(args.loss);
    Zero(args.dhidden);
    const at::Tensor mask = AsTensor(args.labels) != kIgnoredLabel;
    return ForEachChunk(args, stream, mask, [&](const Chunk& chunk) {
      const at::Tensor logsumexp = ScoreChunk(args, chunk);
      return PropagateChunk(args, stream, chunk, logsumexp);
    });
  });
}

}  // namespace sluice::kernels::aten
