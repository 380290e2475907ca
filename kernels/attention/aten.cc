// Correct before fast: one product and one softmax per sequence over all heads, the scores of one sequence at a time.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>

#include <limits>

#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"
#include "kernels/attention/backends.h"

namespace sluice::kernels::aten {
namespace {

// Slots begin..end-1 of [T, heads, D] as fp32 [heads, length, D], each head repeated `group` times.
at::Tensor HeadsOf(const at::Tensor& all, int64_t begin, int64_t end, int64_t group = 1) {
  const at::Tensor heads = all.narrow(0, begin, end - begin).transpose(0, 1).to(at::kFloat);
  return group == 1 ? heads : heads.repeat_interleave(group, 0);
}

// True where query i must not see key j.
at::Tensor HiddenKeys(int64_t length, int64_t window, const at::Device& device) {
  const at::Tensor index = at::arange(length, at::TensorOptions().dtype(at::kLong).device(device));
  const at::Tensor ahead = index.unsqueeze(0) - index.unsqueeze(1);  // key - query
  const at::Tensor future = ahead > 0;
  return window > 0 ? future.logical_or(ahead <= -window) : future;
}

at::Tensor Scores(const at::Tensor& q, const at::Tensor& k, float scale, int64_t window) {
  const at::Tensor scores = at::matmul(q, k.transpose(1, 2)).mul_(scale);
  return scores.masked_fill_(HiddenKeys(q.size(1), window, q.device()), -std::numeric_limits<float>::infinity());
}

void ZeroTail(at::Tensor view, int64_t used) { view.narrow(0, used, view.size(0) - used).zero_(); }

}  // namespace

absl::Status Forward(const AttentionForward& args, Stream stream) {
  return CallAten("attention", stream, [&] {
    const at::Tensor q = AsTensor(args.q);
    const at::Tensor k = AsTensor(args.k);
    const at::Tensor v = AsTensor(args.v);
    at::Tensor out = AsTensor(args.out);
    at::Tensor logsumexp = AsTensor(args.logsumexp);
    const int64_t group = q.size(1) / k.size(1);
    for (size_t s = 0; s + 1 < args.cu_seqlens.size(); ++s) {
      const int64_t begin = args.cu_seqlens[s];
      const int64_t end = args.cu_seqlens[s + 1];
      if (begin == end) continue;
      const at::Tensor scores = Scores(HeadsOf(q, begin, end), HeadsOf(k, begin, end, group), args.scale, args.window);
      const at::Tensor sums = at::logsumexp(scores, -1);
      logsumexp.narrow(1, begin, end - begin).copy_(sums);
      const at::Tensor probabilities = (scores - sums.unsqueeze(-1)).exp_();
      out.narrow(0, begin, end - begin).copy_(at::matmul(probabilities, HeadsOf(v, begin, end, group)).transpose(0, 1));
    }
    const int64_t used = args.cu_seqlens.back();
    ZeroTail(out, used);
    logsumexp.narrow(1, used, logsumexp.size(1) - used).zero_();
  });
}

absl::Status Backward(const AttentionBackward& args, Stream stream) {
  return CallAten("attention", stream, [&] {
    const at::Tensor q = AsTensor(args.q);
    const at::Tensor k = AsTensor(args.k);
    const at::Tensor v = AsTensor(args.v);
    at::Tensor dq = AsTensor(args.dq);
    at::Tensor dk = AsTensor(args.dk);
    at::Tensor dv = AsTensor(args.dv);
    const int64_t kv_heads = k.size(1);
    const int64_t group = q.size(1) / kv_heads;
    for (size_t s = 0; s + 1 < args.cu_seqlens.size(); ++s) {
      const int64_t begin = args.cu_seqlens[s];
      const int64_t end = args.cu_seqlens[s + 1];
      const int64_t length = end - begin;
      if (length == 0) continue;
      const at::Tensor queries = HeadsOf(q, begin, end);
      const at::Tensor keys = HeadsOf(k, begin, end, group);
      const at::Tensor dout = HeadsOf(AsTensor(args.dout), begin, end);
      const at::Tensor logsumexp = AsTensor(args.logsumexp).narrow(1, begin, length).unsqueeze(-1);
      const at::Tensor probabilities = (Scores(queries, keys, args.scale, args.window) - logsumexp).exp_();
      const at::Tensor projection = (dout * HeadsOf(AsTensor(args.out), begin, end)).sum(-1, /*keepdim=*/true);
      const at::Tensor gradients =
          probabilities * (at::matmul(dout, HeadsOf(v, begin, end, group).transpose(1, 2)) - projection);
      // [Hq, length, D] to [length, Hkv, D]: the heads of a group add up.
      const auto store_group = [&](at::Tensor& to, const at::Tensor& by_head) {
        to.narrow(0, begin, length)
            .copy_(by_head.view({kv_heads, group, length, by_head.size(2)}).sum(1).transpose(0, 1));
      };
      store_group(dv, at::matmul(probabilities.transpose(1, 2), dout));
      store_group(dk, at::matmul(gradients.transpose(1, 2), queries).mul_(args.scale));
      dq.narrow(0, begin, length).copy_(at::matmul(gradients, keys).mul_(args.scale).transpose(0, 1));
    }
    const int64_t used = args.cu_seqlens.back();
    ZeroTail(dq, used);
    ZeroTail(dk, used);
    ZeroTail(dv, used);
  });
}

}  // namespace sluice::kernels::aten
