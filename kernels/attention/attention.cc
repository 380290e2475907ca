#include "kernels/attention/attention.h"

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/attention/backends.h"
#include "kernels/check.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "attention";

absl::Status CheckSequences(std::span<const int32_t> cu_seqlens, int64_t slots) {
  if (cu_seqlens.empty() || cu_seqlens.front() != 0)
    return InvalidArgument(kKernel, "cu_seqlens", "does not start at 0");
  for (size_t s = 1; s < cu_seqlens.size(); ++s) {
    if (cu_seqlens[s] < cu_seqlens[s - 1]) {
      return InvalidArgument(kKernel, "cu_seqlens", absl::StrCat("descends at entry ", s));
    }
  }
  if (cu_seqlens.back() <= slots) return absl::OkStatus();
  return InvalidArgument(kKernel, "cu_seqlens", absl::StrCat("ends at ", cu_seqlens.back(), " of ", slots, " slots"));
}

// The arguments that forward and backward share, checked against q.
struct Inputs {
  ConstTensorView q, k, v;
  std::span<const int32_t> cu_seqlens;
};

absl::Status CheckHeads(std::string_view argument, ConstTensorView view, ConstTensorView like) {
  return CheckView(kKernel, argument, view, like.dtype, like.shape, like.device, Layout::kStrided);
}

absl::Status Validate(const Inputs& inputs, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "q", inputs.q, 3, stream, Layout::kStrided));
  const int64_t kv_heads = inputs.k.dim(1);
  if (kv_heads < 1 || inputs.q.dim(1) % kv_heads != 0) {
    return InvalidArgument(kKernel, "k", absl::StrCat(kv_heads, " heads do not divide the ", inputs.q.dim(1), " of q"));
  }
  const Shape kv_shape = {inputs.q.dim(0), kv_heads, inputs.q.dim(2)};
  const auto check = [&](std::string_view argument, ConstTensorView view) {
    return CheckView(kKernel, argument, view, inputs.q.dtype, kv_shape, stream.device, Layout::kStrided);
  };
  RETURN_IF_ERROR(check("k", inputs.k));
  RETURN_IF_ERROR(check("v", inputs.v));
  return CheckSequences(inputs.cu_seqlens, inputs.q.dim(0));
}

absl::Status CheckLogsumexp(ConstTensorView logsumexp, ConstTensorView q) {
  return CheckView(kKernel, "logsumexp", logsumexp, DType::kFloat32, {q.dim(1), q.dim(0)}, q.device);
}

// Whether cuDNN gets the call; without bounds nothing asks for it.
template <typename Args>
absl::StatusOr<bool> IsForCudnn(const Args& args, std::initializer_list<ConstTensorView> arrays) {
  if (args.bounds.empty() || args.q.device.is_cpu()) return false;
  if (!IsCapturableAttention(args.q.dtype, args.q.dim(2))) return false;
  for (const ConstTensorView& array : arrays) {
    if (!array.dense()) return InvalidArgument(kKernel, "bounds", "given with an array that is not dense");
  }
  const bool fits = args.bounds.dtype == DType::kInt32 && args.bounds.shape.rank() == 2 && args.bounds.dim(0) == 4 &&
                    args.bounds.device == args.q.device;
  if (!fits) return InvalidArgument(kKernel, "bounds", "is not int32 [4, B + 1] on the device");
  if (args.bounds.dim(1) < static_cast<int64_t>(args.cu_seqlens.size())) {
    return InvalidArgument(
        kKernel, "bounds",
        absl::StrCat("has room for ", args.bounds.dim(1) - 1, " sequences of ", args.cu_seqlens.size() - 1));
  }
  for (size_t s = 1; s < args.cu_seqlens.size(); ++s) {
    if (args.cu_seqlens[s] - args.cu_seqlens[s - 1] > args.longest) {
      return InvalidArgument(kKernel, "longest", absl::StrCat(args.longest, " is less than sequence ", s - 1, " has"));
    }
  }
  return true;
}

}  // namespace

absl::Status Run(const SequenceBounds& args, Stream stream) {
  constexpr std::string_view kName = "sequence_bounds";
  if (args.cu_seqlens.empty() || args.cu_seqlens.shape.rank() != 1 || args.cu_seqlens.dim(0) < 2) {
    return InvalidArgument(kName, "cu_seqlens", "expected int32 [B + 1] with B at least 1");
  }
  const int64_t entries = args.cu_seqlens.dim(0);
  RETURN_IF_ERROR(CheckView(kName, "cu_seqlens", args.cu_seqlens, DType::kInt32, {entries}, stream.device));
  RETURN_IF_ERROR(CheckView(kName, "bounds", args.bounds, DType::kInt32, {4, entries}, stream.device));
  if (stream.device.is_cpu()) return InvalidArgument(kName, "bounds", "only attention on CUDA reads them");
  return cuda::Run(args, stream);
}

absl::Status Forward(const AttentionForward& args, Stream stream) {
  RETURN_IF_ERROR(Validate({args.q, args.k, args.v, args.cu_seqlens}, stream));
  RETURN_IF_ERROR(CheckHeads("out", args.out, args.q));
  RETURN_IF_ERROR(CheckLogsumexp(args.logsumexp, args.q));
  if (stream.device.is_cpu()) return cpu::Forward(args, stream);
  ASSIGN_OR_RETURN(const bool cudnn, IsForCudnn(args, {args.q, args.k, args.v, args.out}));
  return cudnn ? cuda::Forward(args, stream) : aten::Forward(args, stream);
}

absl::Status Backward(const AttentionBackward& args, Stream stream) {
  RETURN_IF_ERROR(Validate({args.q, args.k, args.v, args.cu_seqlens}, stream));
  RETURN_IF_ERROR(CheckHeads("dout", args.dout, args.q));
  RETURN_IF_ERROR(CheckHeads("out", args.out, args.q));
  RETURN_IF_ERROR(CheckLogsumexp(args.logsumexp, args.q));
  RETURN_IF_ERROR(CheckHeads("dq", args.dq, args.q));
  RETURN_IF_ERROR(CheckHeads("dk", args.dk, args.k));
  RETURN_IF_ERROR(CheckHeads("dv", args.dv, args.k));
  if (stream.device.is_cpu()) return cpu::Backward(args, stream);
  ASSIGN_OR_RETURN(const bool cudnn,
                   IsForCudnn(args, {args.q, args.k, args.v, args.out, args.dout, args.dq, args.dk, args.dv}));
  return cudnn ? cuda::Backward(args, stream) : aten::Backward(args, stream);
}

}  // namespace sluice::kernels
