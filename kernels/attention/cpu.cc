// One task is one query head of one sequence. Its keys and values are packed once for the tile product of
// matmul/gemm_cpu.h and met by one block of queries at a time. Tasks are dealt out longest first; each writes to memory
// of its own, so which thread takes it does not change a bit of the result.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/backends.h"
#include "kernels/matmul/gemm_cpu.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include "kernels/vector_math.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

// Queries a block: a multiple of the tile's rows; its scores against 1,024 keys fill 264 KiB of the second-level cache.
constexpr int64_t kQueryBlock = 11 * kTileRows;

struct Task {
  int64_t first_token, length, head;
};

std::vector<Task> MakeTasks(std::span<const int32_t> cu_seqlens, int64_t heads) {
  std::vector<Task> tasks;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const int64_t length = cu_seqlens[s + 1] - cu_seqlens[s];
    for (int64_t head = 0; head < heads && length > 0; ++head) tasks.push_back({cu_seqlens[s], length, head});
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.length > b.length; });
  return tasks;
}

// Head `head` of [T, heads, D] from `token` on.
template <typename T, typename View>
auto* HeadOf(const View& view, int64_t token, int64_t head) {
  return view.template as<T>() + token * view.row_stride + head * view.dim(2);
}

// The keys that a block of queries first..last-1 meets, rounded outwards to whole tiles at the left.
struct KeyRange {
  int64_t begin, end;
};

int64_t FirstKey(int64_t query, int64_t window) { return window > 0 ? std::max<int64_t>(query + 1 - window, 0) : 0; }

KeyRange KeysOf(int64_t first_query, int64_t last_query, int64_t window) {
  return {FirstKey(first_query, window) / kTileColumns * kTileColumns, last_query};
}

// scores[i, j] becomes exp(scores[i, j] - logsumexp) for visible keys and 0 for the others of the block. Columns are
// relative to keys.begin.
void Exponentials(float* row, int64_t columns, int64_t first, int64_t last, float offset) {
  std::fill(row, row + first, 0.0f);
#pragma omp simd
  for (int64_t j = first; j < last; ++j) row[j] = FastExp(row[j] - offset);
  std::fill(row + last, row + columns, 0.0f);
}

float MaximumOf(const float* row, int64_t count) {
  float maximum = row[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t j = 0; j < count; ++j) maximum = row[j] > maximum ? row[j] : maximum;
  return maximum;
}

float SumOf(const float* row, int64_t count) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < count; ++j) sum += row[j];
  return sum;
}

template <typename T>
void Store(const float* from, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) to[row * to_stride + i] = T(from[row * columns + i]);
  }
}

// Zeroes the slots behind the last sequence.
template <typename T>
void ZeroTail(TensorView view, int64_t used) {
  for (int64_t token = used; token < view.dim(0); ++token) {
    T* row = view.as<T>() + token * view.row_stride;
    std::fill(row, row + view.shape.row_elements(), T(0.0f));
  }
}

// What a forward task needs, for the longest sequence.
struct ForwardScratch {
  ForwardScratch(int64_t length, int64_t head_dim)
      : keys(MakeScratch(RoundUp(length, kTileColumns) * head_dim)),
        values(MakeScratch(length * RoundUp(head_dim, kTileColumns))),
        queries(MakeScratch(kQueryBlock * head_dim)),
        scores(MakeScratch(kQueryBlock * RoundUp(length, kTileColumns))),
        packed_scores(MakeScratch(kQueryBlock * RoundUp(length, kTileColumns))),
        out(MakeScratch(kQueryBlock * head_dim)) {}

  Scratch keys, values, queries, scores, packed_scores, out;
};

template <typename T>
void ForwardTask(const AttentionForward& args, const Task& task, ForwardScratch& scratch) {
  const int64_t head_dim = args.q.dim(2);
  const int64_t kv_head = task.head / (args.q.dim(1) / args.k.dim(1));
  const int64_t length = task.length;
  float* logsumexp = args.logsumexp.as<float>() + task.head * args.q.dim(0) + task.first_token;
  PackRight<T>({HeadOf<T>(args.k, task.first_token, kv_head), args.k.row_stride, true}, head_dim, length,
               scratch.keys.get());
  PackRight<T>({HeadOf<T>(args.v, task.first_token, kv_head), args.v.row_stride, false}, length, head_dim,
               scratch.values.get());

  for (int64_t first = 0; first < length; first += kQueryBlock) {
    const int64_t queries = std::min(kQueryBlock, length - first);
    const KeyRange keys = KeysOf(first, first + queries, args.window);
    const int64_t columns = keys.end - keys.begin;
    PackLeft<T>({HeadOf<T>(args.q, task.first_token + first, task.head), args.q.row_stride, false}, queries, head_dim,
                scratch.queries.get());
    MultiplyPacked(scratch.queries.get(), head_dim, scratch.keys.get() + keys.begin * head_dim, head_dim, queries,
                   columns, head_dim, args.scale, 0.0f, scratch.scores.get(), columns);

    float sums[kQueryBlock];
    for (int64_t i = 0; i < queries; ++i) {
      float* row = scratch.scores.get() + i * columns;
      const int64_t begin = FirstKey(first + i, args.window) - keys.begin;
      const int64_t end = first + i + 1 - keys.begin;
      const float maximum = MaximumOf(row + begin, end - begin);
      Exponentials(row, columns, begin, end, maximum);
      sums[i] = SumOf(row + begin, end - begin);
      logsumexp[first + i] = maximum + std::log(sums[i]);
    }

    PackLeft<float>({scratch.scores.get(), columns, false}, queries, columns, scratch.packed_scores.get());
    MultiplyPacked(scratch.packed_scores.get(), columns, scratch.values.get() + keys.begin * kTileColumns, length,
                   queries, head_dim, columns, 1.0f, 0.0f, scratch.out.get(), head_dim);
    for (int64_t i = 0; i < queries; ++i) {
      float* row = scratch.out.get() + i * head_dim;
      const float factor = 1.0f / sums[i];
#pragma omp simd
      for (int64_t d = 0; d < head_dim; ++d) row[d] *= factor;
    }
    Store(scratch.out.get(), queries, head_dim, HeadOf<T>(args.out, task.first_token + first, task.head),
          args.out.row_stride);
  }
}

int64_t LongestOf(const std::vector<Task>& tasks) { return tasks.empty() ? 0 : tasks.front().length; }

template <typename T>
void ForwardAll(const AttentionForward& args) {
  const int64_t slots = args.q.dim(0);
  const int64_t used = args.cu_seqlens.back();
  const std::vector<Task> tasks = MakeTasks(args.cu_seqlens, args.q.dim(1));
  const auto count = static_cast<int64_t>(tasks.size());
  std::vector<ForwardScratch> scratch;
  for (int64_t i = 0; i < PartCount(count, 1); ++i) scratch.emplace_back(LongestOf(tasks), args.q.dim(2));
  ParallelTasks(count, [&](int64_t worker, int64_t task) {
    ForwardTask<T>(args, tasks[static_cast<size_t>(task)], scratch[static_cast<size_t>(worker)]);
  });
  ZeroTail<T>(args.out, used);
  for (int64_t head = 0; head < args.q.dim(1); ++head) {
    float* row = args.logsumexp.as<float>() + head * slots;
    std::fill(row + used, row + slots, 0.0f);
  }
}

struct BackwardScratch {
  BackwardScratch(int64_t length, int64_t head_dim)
      : keys(MakeScratch(RoundUp(length, kTileColumns) * head_dim)),
        values(MakeScratch(RoundUp(length, kTileColumns) * head_dim)),
        keys_by_token(MakeScratch(length * RoundUp(head_dim, kTileColumns))),
        rows(MakeScratch(kQueryBlock * head_dim)),
        right_rows(MakeScratch(kQueryBlock * RoundUp(head_dim, kTileColumns))),
        probabilities(MakeScratch(kQueryBlock * RoundUp(length, kTileColumns))),
        gradients(MakeScratch(kQueryBlock * RoundUp(length, kTileColumns))),
        packed(MakeScratch((kQueryBlock + kTileRows) * RoundUp(length + kTileRows, kTileColumns))) {}

  Scratch keys, values;   // as right operands along head_dim: for scores and for the probabilities' gradients
  Scratch keys_by_token;  // as a right operand along the tokens: for dq
  Scratch rows, right_rows, probabilities, gradients, packed;
};

// dk and dv of one query head: summed over the heads of a group afterwards.
struct HeadGradients {
  float* dk;  // [length, D]
  float* dv;
};

// With P the probabilities: dv += P^T dout; dP = dout v^T; dS = P * (dP - rowsum(dout * out)); dq = scale * dS k;
// dk += scale * dS^T q.
template <typename T>
void BackwardTask(const AttentionBackward& args, const Task& task, BackwardScratch& scratch, HeadGradients to) {
  const int64_t head_dim = args.q.dim(2);
  const int64_t kv_head = task.head / (args.q.dim(1) / args.k.dim(1));
  const int64_t length = task.length;
  const float* logsumexp = args.logsumexp.as<float>() + task.head * args.q.dim(0) + task.first_token;
  const Operand<T> k = {HeadOf<T>(args.k, task.first_token, kv_head), args.k.row_stride, true};
  const Operand<T> v = {HeadOf<T>(args.v, task.first_token, kv_head), args.v.row_stride, true};
  PackRight<T>(k, head_dim, length, scratch.keys.get());
  PackRight<T>(v, head_dim, length, scratch.values.get());
  PackRight<T>({k.data, k.stride, false}, length, head_dim, scratch.keys_by_token.get());
  std::fill_n(to.dk, length * head_dim, 0.0f);
  std::fill_n(to.dv, length * head_dim, 0.0f);

  for (int64_t first = 0; first < length; first += kQueryBlock) {
    const int64_t queries = std::min(kQueryBlock, length - first);
    const KeyRange keys = KeysOf(first, first + queries, args.window);
    const int64_t columns = keys.end - keys.begin;
    const int64_t token = task.first_token + first;
    const T* dout = HeadOf<T>(args.dout, token, task.head);
    const T* out = HeadOf<T>(args.out, token, task.head);
    const T* q = HeadOf<T>(args.q, token, task.head);
    float* probabilities = scratch.probabilities.get();
    float* gradients = scratch.gradients.get();
    const auto multiply_by_keys = [&](Operand<T> left, const Scratch& right, float alpha, float* result) {
      PackLeft<T>(left, queries, head_dim, scratch.rows.get());
      MultiplyPacked(scratch.rows.get(), head_dim, right.get() + keys.begin * head_dim, head_dim, queries, columns,
                     head_dim, alpha, 0.0f, result, columns);
    };
    multiply_by_keys({q, args.q.row_stride, false}, scratch.keys, args.scale, probabilities);
    multiply_by_keys({dout, args.dout.row_stride, false}, scratch.values, 1.0f, gradients);

    for (int64_t i = 0; i < queries; ++i) {
      float* p = probabilities + i * columns;
      float* g = gradients + i * columns;
      Exponentials(p, columns, FirstKey(first + i, args.window) - keys.begin, first + i + 1 - keys.begin,
                   logsumexp[first + i]);
      float projection = 0.0f;
#pragma omp simd reduction(+ : projection)
      for (int64_t d = 0; d < head_dim; ++d) {
        projection += static_cast<float>(dout[i * args.dout.row_stride + d]) *
                      static_cast<float>(out[i * args.out.row_stride + d]);
      }
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) g[j] = p[j] * (g[j] - projection);
    }

    const auto add_to_keys = [&](const float* left, Operand<T> right, float alpha, float* result) {
      PackLeft<float>({left, columns, true}, columns, queries, scratch.packed.get());
      PackRight<T>(right, queries, head_dim, scratch.right_rows.get());
      MultiplyPacked(scratch.packed.get(), queries, scratch.right_rows.get(), queries, columns, head_dim, queries,
                     alpha, 1.0f, result + keys.begin * head_dim, head_dim);
    };
    add_to_keys(probabilities, {dout, args.dout.row_stride, false}, 1.0f, to.dv);
    add_to_keys(gradients, {q, args.q.row_stride, false}, args.scale, to.dk);

    PackLeft<float>({gradients, columns, false}, queries, columns, scratch.packed.get());
    MultiplyPacked(scratch.packed.get(), columns, scratch.keys_by_token.get() + keys.begin * kTileColumns, length,
                   queries, head_dim, columns, args.scale, 0.0f, scratch.rows.get(), head_dim);
    Store(scratch.rows.get(), queries, head_dim, HeadOf<T>(args.dq, token, task.head), args.dq.row_stride);
  }
}

// Sums the gradients of a group's query heads, in their order, into their key/value head.
template <typename T>
void SumGroups(const float* by_head, int64_t used, int64_t group, TensorView to) {
  const int64_t head_dim = to.dim(2);
  ParallelFor(used, GrainOf(to.shape.row_elements() * group), [&](int64_t begin, int64_t end) {
    Scratch sum = MakeScratch(head_dim);
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t kv_head = 0; kv_head < to.dim(1); ++kv_head) {
        std::fill_n(sum.get(), head_dim, 0.0f);
        for (int64_t member = 0; member < group; ++member) {
          const float* from = by_head + ((kv_head * group + member) * used + token) * head_dim;
#pragma omp simd
          for (int64_t d = 0; d < head_dim; ++d) sum[static_cast<size_t>(d)] += from[d];
        }
        Store(sum.get(), 1, head_dim, HeadOf<T>(to, token, kv_head), to.row_stride);
      }
    }
  });
}

template <typename T>
void BackwardAll(const AttentionBackward& args) {
  const int64_t used = args.cu_seqlens.back();
  const int64_t heads = args.q.dim(1);
  const int64_t head_dim = args.q.dim(2);
  const int64_t group = heads / args.k.dim(1);
  const std::vector<Task> tasks = MakeTasks(args.cu_seqlens, heads);
  const auto count = static_cast<int64_t>(tasks.size());
  std::vector<BackwardScratch> scratch;
  for (int64_t i = 0; i < PartCount(count, 1); ++i) scratch.emplace_back(LongestOf(tasks), head_dim);
  Scratch dk = MakeScratch(heads * used * head_dim);
  Scratch dv = MakeScratch(heads * used * head_dim);
  ParallelTasks(count, [&](int64_t worker, int64_t index) {
    const Task& task = tasks[static_cast<size_t>(index)];
    const int64_t offset = (task.head * used + task.first_token) * head_dim;
    BackwardTask<T>(args, task, scratch[static_cast<size_t>(worker)], {dk.get() + offset, dv.get() + offset});
  });
  SumGroups<T>(dk.get(), used, group, args.dk);
  SumGroups<T>(dv.get(), used, group, args.dv);
  ZeroTail<T>(args.dq, used);
  ZeroTail<T>(args.dk, used);
  ZeroTail<T>(args.dv, used);
}

}  // namespace

absl::Status Forward(const AttentionForward& args, Stream) {
  VisitFloating(args.q.dtype, [&](auto zero) { ForwardAll<decltype(zero)>(args); });
  return absl::OkStatus();
}

absl::Status Backward(const AttentionBackward& args, Stream) {
  VisitFloating(args.q.dtype, [&](auto zero) { BackwardAll<decltype(zero)>(args); });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
