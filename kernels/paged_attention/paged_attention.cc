#include "kernels/paged_attention/paged_attention.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/check.h"
#include "kernels/paged_attention/backends.h"

namespace sluice::kernels {
namespace {

constexpr std::string_view kKernel = "paged_attention";
constexpr std::string_view kAppendKernel = "paged_append";

// The cache sets its own number and size of pages; heads and head size are given.
absl::Status CheckCaches(std::string_view kernel, ConstTensorView k_cache, ConstTensorView v_cache, DType dtype,
                         int64_t kv_heads, int64_t head_dim, Stream stream) {
  if (k_cache.empty() || k_cache.shape.rank() != 4) return InvalidArgument(kernel, "k_cache", "is not [N, P, Hkv, D]");
  const Shape shape = {k_cache.dim(0), k_cache.dim(1), kv_heads, head_dim};
  RETURN_IF_ERROR(CheckView(kernel, "k_cache", k_cache, dtype, shape, stream.device, Layout::kStrided));
  RETURN_IF_ERROR(CheckView(kernel, "v_cache", v_cache, dtype, shape, stream.device, Layout::kStrided));
  if (k_cache.dim(1) < 1) return InvalidArgument(kernel, "k_cache", "its pages hold no token");
  return absl::OkStatus();
}

absl::Status CheckLengths(const PagedAttention& args) {
  const std::span<const int32_t> cu_seqlens = args.cu_seqlens;
  if (cu_seqlens.empty() || cu_seqlens.front() != 0)
    return InvalidArgument(kKernel, "cu_seqlens", "does not start at 0");
  if (cu_seqlens.back() > args.q.dim(0)) {
    return InvalidArgument(kKernel, "cu_seqlens",
                           absl::StrCat("ends at ", cu_seqlens.back(), " of ", args.q.dim(0), " tokens"));
  }
  const int64_t sequences = static_cast<int64_t>(cu_seqlens.size()) - 1;
  if (static_cast<int64_t>(args.context_lengths.size()) != sequences) {
    return InvalidArgument(kKernel, "context_lengths",
                           absl::StrCat("has ", args.context_lengths.size(), " entries for ", sequences, " sequences"));
  }
  const int64_t room = args.block_table.dim(1) * args.k_cache.dim(1);
  for (size_t s = 0; s < args.context_lengths.size(); ++s) {
    const int64_t new_tokens = cu_seqlens[s + 1] - cu_seqlens[s];
    if (new_tokens < 0) return InvalidArgument(kKernel, "cu_seqlens", absl::StrCat("descends at entry ", s + 1));
    const int64_t length = args.context_lengths[s];
    if (length < new_tokens || length > room) {
      return InvalidArgument(kKernel, "context_lengths",
                             absl::StrCat("sequence ", s, " has ", length, " tokens, of which ", new_tokens,
                                          " are new; its row of the table has room for ", room));
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const PagedAttention& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kKernel, "q", args.q, 3, stream, Layout::kStrided));
  RETURN_IF_ERROR(CheckView(kKernel, "out", args.out, args.q.dtype, args.q.shape, stream.device, Layout::kStrided));
  const int64_t kv_heads = args.k_cache.shape.rank() == 4 ? args.k_cache.dim(2) : 0;
  if (kv_heads < 1 || args.q.dim(1) % kv_heads != 0) {
    return InvalidArgument(kKernel, "k_cache",
                           absl::StrCat(kv_heads, " heads do not divide the ", args.q.dim(1), " of q"));
  }
  RETURN_IF_ERROR(CheckCaches(kKernel, args.k_cache, args.v_cache, args.q.dtype, kv_heads, args.q.dim(2), stream));
  const bool is_matrix = args.block_table.shape.rank() == 2;
  const int64_t pages = is_matrix ? args.block_table.dim(1) : 0;
  const int64_t sequences = stream.device.is_cpu() ? static_cast<int64_t>(args.cu_seqlens.size()) - 1
                            : is_matrix            ? args.block_table.dim(0)
                                                   : 0;
  RETURN_IF_ERROR(CheckView(kKernel, "block_table", args.block_table, DType::kInt32, {sequences, pages}, stream.device,
                            Layout::kStrided));
  if (stream.device.is_cpu()) return CheckLengths(args);
  if (args.q.dim(2) > 256) return InvalidArgument(kKernel, "q", "heads of more than 256 elements, on CUDA");
  const Shape tokens = {args.q.dim(0)};
  RETURN_IF_ERROR(
      CheckView(kKernel, "sequences", args.sequences, DType::kInt32, tokens, stream.device, Layout::kDense));
  return CheckView(kKernel, "positions", args.positions, DType::kInt32, tokens, stream.device, Layout::kDense);
}

}  // namespace

absl::Status Run(const PagedAppend& args, Stream stream) {
  RETURN_IF_ERROR(CheckLeadingView(kAppendKernel, "k", args.k, 3, stream, Layout::kStrided));
  RETURN_IF_ERROR(CheckView(kAppendKernel, "v", args.v, args.k.dtype, args.k.shape, stream.device, Layout::kStrided));
  RETURN_IF_ERROR(
      CheckView(kAppendKernel, "slots", args.slots, DType::kInt32, {args.k.dim(0)}, stream.device, Layout::kDense));
  RETURN_IF_ERROR(
      CheckCaches(kAppendKernel, args.k_cache, args.v_cache, args.k.dtype, args.k.dim(1), args.k.dim(2), stream));
  return stream.device.is_cpu() ? cpu::Run(args, stream) : cuda::Run(args, stream);
}

absl::Status Forward(const PagedAttention& args, Stream stream) {
  RETURN_IF_ERROR(Validate(args, stream));
  return stream.device.is_cpu() ? cpu::Forward(args, stream) : cuda::Forward(args, stream);
}

}  // namespace sluice::kernels
