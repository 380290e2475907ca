// Correct before fast: pages are gathered into dense keys and values. The sequences in front that decode share their
// products, padded to the longest of them; a prompt's chunk is computed by itself.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <limits>

#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/paged_attention/backends.h"

namespace sluice::kernels::aten {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// Gathered keys and values of decoding sequences take at most about so many elements at once.
constexpr int64_t kGatheredElements = int64_t{1} << 27;

// The first `pages` pages of table rows begin..end-1: fp32 [rows, Hkv, pages * P, D].
at::Tensor Gather(const at::Tensor& cache, const at::Tensor& table, int64_t begin, int64_t end, int64_t pages) {
  const at::Tensor ids = table.narrow(0, begin, end - begin).narrow(1, 0, pages).reshape({-1});
  return at::index_select(cache, 0, ids)
      .reshape({end - begin, pages * cache.size(1), cache.size(2), cache.size(3)})
      .transpose(1, 2)
      .to(at::kFloat);
}

at::Tensor ToDevice(std::span<const int32_t> values, const at::Device& device) {
  // from_blob wants a mutable pointer; the copy below only reads.
  return at::from_blob(const_cast<int32_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kInt)
      .to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

struct Problem {
  at::Tensor q, k_cache, v_cache, table, out;
  int64_t group, page_size, window;
  float scale;
};

// Attention weights from scores [..., queries, keys], then the weighted values.
at::Tensor Attend(const Problem& problem, at::Tensor scores, const at::Tensor& hidden, const at::Tensor& values) {
  scores = scores.mul_(problem.scale).masked_fill_(hidden, kHidden);
  return at::matmul(at::softmax(scores, -1), values);
}

at::Tensor HiddenKeys(const at::Tensor& query_position, int64_t keys, int64_t window) {
  const at::Tensor key_position =
      at::arange(keys, at::TensorOptions().dtype(at::kLong).device(query_position.device()));
  const at::Tensor ahead = key_position - query_position.unsqueeze(-1);
  const at::Tensor future = ahead > 0;
  return window > 0 ? future.logical_or(ahead <= -window) : future;
}

// Sequences begin..end-1 with one new token each, whose slot is their number.
void DecodeTogether(const Problem& problem, std::span<const int32_t> context_lengths, int64_t begin, int64_t end) {
  const auto lengths = context_lengths.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const int64_t pages = (longest + problem.page_size - 1) / problem.page_size;
  const int64_t keys = pages * problem.page_size;
  const int64_t kv_heads = problem.k_cache.size(2), head_dim = problem.k_cache.size(3);
  const at::Tensor position = ToDevice(lengths, problem.q.device()) - 1;
  const at::Tensor hidden = HiddenKeys(position, keys, problem.window);  // [n, keys]
  const at::Tensor q =
      problem.q.narrow(0, begin, end - begin).reshape({end - begin, kv_heads, problem.group, head_dim}).to(at::kFloat);
  const at::Tensor k = Gather(problem.k_cache, problem.table, begin, end, pages);
  // An entry that no token was written to may hold anything, and 0 * NaN would be NaN.
  at::Tensor v = Gather(problem.v_cache, problem.table, begin, end, pages);
  v = v.masked_fill(hidden.view({end - begin, 1, keys, 1}), 0.0);
  const at::Tensor out = Attend(problem, at::matmul(q, k.transpose(2, 3)), hidden.view({end - begin, 1, 1, keys}), v);
  problem.out.narrow(0, begin, end - begin).copy_(out.reshape({end - begin, kv_heads * problem.group, head_dim}));
}

// New tokens slot .. slot + tokens - 1 of sequence `s`.
void AttendChunk(const Problem& problem, int64_t s, int64_t slot, int64_t tokens, int64_t length) {
  const int64_t pages = (length + problem.page_size - 1) / problem.page_size;
  const auto heads = [&](const at::Tensor& cache) {  // [Hq, length, D]
    const at::Tensor all = Gather(cache, problem.table, s, s + 1, pages)[0].narrow(1, 0, length);
    return problem.group == 1 ? all : all.repeat_interleave(problem.group, 0);
  };
  const at::Tensor q = problem.q.narrow(0, slot, tokens).transpose(0, 1).to(at::kFloat);
  const at::Tensor position =
      at::arange(length - tokens, length, at::TensorOptions().dtype(at::kLong).device(q.device()));
  const at::Tensor out = Attend(problem, at::matmul(q, heads(problem.k_cache).transpose(1, 2)),
                                HiddenKeys(position, length, problem.window), heads(problem.v_cache));
  problem.out.narrow(0, slot, tokens).copy_(out.transpose(0, 1));
}

}  // namespace

absl::Status Run(const PagedAppend& args, Stream stream) {
  return CallAten("paged_append", stream, [&] {
    const at::Tensor slots = AsTensor(args.slots).to(at::kLong);
    const int64_t page_size = args.k_cache.dim(1);
    const at::Tensor page = slots.div(page_size, "floor");
    const at::Tensor entry = slots.remainder(page_size);
    AsTensor(args.k_cache).index_put_({page, entry}, AsTensor(args.k));
    AsTensor(args.v_cache).index_put_({page, entry}, AsTensor(args.v));
  });
}

absl::Status Forward(const PagedAttention& args, Stream stream) {
  return CallAten("paged_attention", stream, [&] {
    const Problem problem = {.q = AsTensor(args.q),
                             .k_cache = AsTensor(args.k_cache),
                             .v_cache = AsTensor(args.v_cache),
                             .table = AsTensor(args.block_table),
                             .out = AsTensor(args.out),
                             .group = args.q.dim(1) / args.k_cache.dim(2),
                             .page_size = args.k_cache.dim(1),
                             .window = args.window,
                             .scale = args.scale};
    const auto sequences = static_cast<int64_t>(args.context_lengths.size());
    int64_t decoding = 0;
    while (decoding < sequences && args.cu_seqlens[static_cast<size_t>(decoding) + 1] == decoding + 1) ++decoding;
    if (decoding > 0) {
      const int64_t longest = *std::max_element(args.context_lengths.begin(), args.context_lengths.begin() + decoding);
      const int64_t row = std::max<int64_t>(2 * longest * args.k_cache.dim(2) * args.k_cache.dim(3), 1);
      const int64_t step = std::max<int64_t>(kGatheredElements / row, 1);
      for (int64_t begin = 0; begin < decoding; begin += step) {
        DecodeTogether(problem, args.context_lengths, begin, std::min(begin + step, decoding));
      }
    }
    for (int64_t s = decoding; s < sequences; ++s) {
      const int64_t slot = args.cu_seqlens[static_cast<size_t>(s)];
      const int64_t tokens = args.cu_seqlens[static_cast<size_t>(s) + 1] - slot;
      if (tokens > 0) AttendChunk(problem, s, slot, tokens, args.context_lengths[static_cast<size_t>(s)]);
    }
  });
}

}  // namespace sluice::kernels::aten
