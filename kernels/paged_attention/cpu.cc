// One task is one key/value head of one sequence and a block of the query rows that read it: the tokens of the block,
// each with all its query heads. It walks the pages where they lie, so a decoding step reads each key and value once.
// Every sum of a row is taken in an order that follows from the row's own keys: that is what makes the result the same
// in any batch.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"
#include "kernels/paged_attention/backends.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include "kernels/vector_math.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

// Query rows a task: enough that a page in the first-level cache is used often, few enough that one long prompt keeps
// every thread busy.
constexpr int64_t kRowBlock = 32;

// Sums are taken in so many lanes whatever the vector length of the machine.
constexpr int64_t kLanes = 8;

struct Task {
  int64_t sequence, kv_head, first_token, tokens;  // tokens: of the sequence's new ones
};

float SumOfLanes(const float (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

template <typename T>
float Dot(const float* a, const T* b, int64_t size) {
  float lanes[kLanes] = {};
  int64_t d = 0;
  for (; d + kLanes <= size; d += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[d + lane] * static_cast<float>(b[d + lane]);
  }
  for (; d < size; ++d) lanes[d % kLanes] += a[d] * static_cast<float>(b[d]);
  return SumOfLanes(lanes);
}

// row[i] becomes exp(row[i] - max(row)); returns the sum.
float Exponentials(float* row, int64_t count) {
  float maximum = row[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 1; i < count; ++i) maximum = row[i] > maximum ? row[i] : maximum;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      row[i + lane] = FastExp(row[i + lane] - maximum);
      lanes[lane] += row[i + lane];
    }
  }
  for (; i < count; ++i) {
    row[i] = FastExp(row[i] - maximum);
    lanes[i % kLanes] += row[i];
  }
  return SumOfLanes(lanes);
}

// out[0..size-1] += sum over count values of weights[j] * values[j][0..size-1], key after key.
template <typename T>
void AddWeighted(const float* weights, const T* values, int64_t count, int64_t stride, int64_t size, float* out) {
  constexpr int64_t kChunk = 4 * kLanes;  // sums that stay in registers
  int64_t d = 0;
  for (; d + kChunk <= size; d += kChunk) {
    float sums[kChunk];
    for (int64_t i = 0; i < kChunk; ++i) sums[i] = out[d + i];
    for (int64_t j = 0; j < count; ++j) {
      const T* value = values + j * stride + d;
      for (int64_t i = 0; i < kChunk; ++i) sums[i] += weights[j] * static_cast<float>(value[i]);
    }
    for (int64_t i = 0; i < kChunk; ++i) out[d + i] = sums[i];
  }
  for (int64_t j = 0; j < count && d < size; ++j) {
    for (int64_t i = d; i < size; ++i) out[i] += weights[j] * static_cast<float>(values[j * stride + i]);
  }
}

struct TaskScratch {
  TaskScratch(int64_t rows, int64_t length, int64_t head_dim)
      : queries(MakeScratch(rows * head_dim)), out(MakeScratch(rows * head_dim)), scores(MakeScratch(rows * length)) {}

  Scratch queries, out, scores;
};

template <typename T>
class TaskRunner {
 public:
  TaskRunner(const PagedAttention& args, const Task& task, TaskScratch& scratch)
      : args_(args),
        scratch_(scratch),
        head_dim_(args.q.dim(2)),
        group_(args.q.dim(1) / args.k_cache.dim(2)),
        kv_head_(task.kv_head),
        rows_(task.tokens * group_),
        first_slot_(args.cu_seqlens[static_cast<size_t>(task.sequence)] + task.first_token),
        pages_(args.block_table.as<int32_t>() + task.sequence * args.block_table.row_stride) {
    const auto s = static_cast<size_t>(task.sequence);
    first_position_ = args.context_lengths[s] - (args.cu_seqlens[s + 1] - args.cu_seqlens[s]) + task.first_token;
    first_key_ = FirstKey(0);
    last_key_ = first_position_ + task.tokens;  // exclusive
    width_ = last_key_ - first_key_;
  }

  void Run() {
    for (int64_t row = 0; row < rows_; ++row) {
      const T* q = Row(args_.q, row);
      for (int64_t d = 0; d < head_dim_; ++d) scratch_.queries[Index(row * head_dim_ + d)] = static_cast<float>(q[d]);
    }
    ForEachPage(args_.k_cache, [&](const T* keys, int64_t first, int64_t last) { Score(keys, first, last); });
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t token = row / group_;
      float* weights = scratch_.scores.get() + row * width_ + FirstKey(token) - first_key_;
      const int64_t count = LastKey(token) - FirstKey(token);
      const float factor = 1.0f / Exponentials(weights, count);
      for (int64_t i = 0; i < count; ++i) weights[i] *= factor;
    }
    std::fill_n(scratch_.out.get(), rows_ * head_dim_, 0.0f);
    ForEachPage(args_.v_cache, [&](const T* values, int64_t first, int64_t last) { Add(values, first, last); });
    for (int64_t row = 0; row < rows_; ++row) {
      T* to = Row(args_.out, row);
      for (int64_t d = 0; d < head_dim_; ++d) to[d] = T(scratch_.out[Index(row * head_dim_ + d)]);
    }
  }

 private:
  static size_t Index(int64_t i) { return static_cast<size_t>(i); }

  // The keys first .. last - 1 that the token of the task sees, as positions of the sequence.
  int64_t FirstKey(int64_t token) const {
    return args_.window > 0 ? std::max<int64_t>(first_position_ + token + 1 - args_.window, 0) : 0;
  }
  int64_t LastKey(int64_t token) const { return first_position_ + token + 1; }

  template <typename View>
  auto* Row(const View& view, int64_t row) const {
    return view.template as<T>() + (first_slot_ + row / group_) * view.row_stride +
           (kv_head_ * group_ + row % group_) * head_dim_;
  }

  // body(this head's entry for position `first`, first, last) for the part of each page that the task's rows see.
  template <typename Body>
  void ForEachPage(const ConstTensorView& cache, Body body) const {
    const int64_t page_size = cache.dim(1);
    for (int64_t first = first_key_; first < last_key_;) {
      const int64_t page = first / page_size;
      const int64_t last = std::min((page + 1) * page_size, last_key_);
      const T* entries = cache.as<T>() + pages_[page] * cache.row_stride + (first - page * page_size) * stride() +
                         kv_head_ * head_dim_;
      body(entries, first, last);
      first = last;
    }
  }

  int64_t stride() const { return args_.k_cache.dim(2) * head_dim_; }  // between tokens of a page

  void Score(const T* keys, int64_t first, int64_t last) {
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t begin = std::max(first, FirstKey(row / group_));
      const int64_t end = std::min(last, LastKey(row / group_));
      const float* query = scratch_.queries.get() + row * head_dim_;
      float* scores = scratch_.scores.get() + row * width_;
      for (int64_t j = begin; j < end; ++j) {
        scores[j - first_key_] = args_.scale * Dot(query, keys + (j - first) * stride(), head_dim_);
      }
    }
  }

  void Add(const T* values, int64_t first, int64_t last) {
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t begin = std::max(first, FirstKey(row / group_));
      const int64_t end = std::min(last, LastKey(row / group_));
      if (begin >= end) continue;
      AddWeighted(scratch_.scores.get() + row * width_ + begin - first_key_, values + (begin - first) * stride(),
                  end - begin, stride(), head_dim_, scratch_.out.get() + row * head_dim_);
    }
  }

  const PagedAttention& args_;
  TaskScratch& scratch_;
  const int64_t head_dim_, group_, kv_head_, rows_;
  const int64_t first_slot_;      // of the task's first token in q and out
  const int32_t* const pages_;    // the sequence's row of the table
  int64_t first_position_ = 0;    // of the task's first token in the sequence
  int64_t first_key_, last_key_;  // what any of the rows sees
  int64_t width_ = 0;             // scores a row
};

std::vector<Task> MakeTasks(const PagedAttention& args) {
  const int64_t kv_heads = args.k_cache.dim(2);
  const int64_t block = std::max<int64_t>(kRowBlock / (args.q.dim(1) / kv_heads), 1);
  std::vector<Task> tasks;
  for (int64_t s = 0; s < static_cast<int64_t>(args.context_lengths.size()); ++s) {
    const int64_t tokens = args.cu_seqlens[static_cast<size_t>(s) + 1] - args.cu_seqlens[static_cast<size_t>(s)];
    for (int64_t first = 0; first < tokens; first += block) {
      for (int64_t head = 0; head < kv_heads; ++head) {
        tasks.push_back({s, head, first, std::min(block, tokens - first)});
      }
    }
  }
  return tasks;
}

template <typename T>
void ForwardAll(const PagedAttention& args) {
  const std::vector<Task> tasks = MakeTasks(args);
  const auto count = static_cast<int64_t>(tasks.size());
  if (count == 0) return;
  const int64_t rows = std::max(kRowBlock, args.q.dim(1) / args.k_cache.dim(2));
  const int64_t longest = *std::max_element(args.context_lengths.begin(), args.context_lengths.end());
  std::vector<TaskScratch> scratch;
  for (int64_t i = 0; i < PartCount(count, 1); ++i) scratch.emplace_back(rows, longest, args.q.dim(2));
  ParallelTasks(count, [&](int64_t worker, int64_t task) {
    TaskRunner<T>(args, tasks[static_cast<size_t>(task)], scratch[static_cast<size_t>(worker)]).Run();
  });
}

// A wrong page would be read from or written to wherever it points.
absl::Status CheckTable(const PagedAttention& args) {
  const int64_t page_size = args.k_cache.dim(1);
  for (size_t s = 0; s < args.context_lengths.size(); ++s) {
    const int32_t* row = args.block_table.as<int32_t>() + static_cast<int64_t>(s) * args.block_table.row_stride;
    for (int64_t page = 0; page * page_size < args.context_lengths[s]; ++page) {
      if (row[page] < 0 || row[page] >= args.k_cache.dim(0)) {
        return InvalidArgument("paged_attention", "block_table",
                               absl::StrCat("sequence ", s, " names page ", row[page], " of ", args.k_cache.dim(0)));
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
void AppendAll(const PagedAppend& args) {
  const int64_t size = args.k.shape.row_elements();
  const int64_t page_size = args.k_cache.dim(1);
  const int32_t* slots = args.slots.as<int32_t>();
  const auto entry = [&](const TensorView& cache, int64_t slot) {
    return cache.as<T>() + slot / page_size * cache.row_stride + slot % page_size * size;
  };
  ParallelFor(args.k.dim(0), GrainOf(2 * size), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      std::copy_n(args.k.as<T>() + t * args.k.row_stride, size, entry(args.k_cache, slots[t]));
      std::copy_n(args.v.as<T>() + t * args.v.row_stride, size, entry(args.v_cache, slots[t]));
    }
  });
}

}  // namespace

absl::Status Run(const PagedAppend& args, Stream) {
  const int64_t room = args.k_cache.dim(0) * args.k_cache.dim(1);
  for (int64_t t = 0; t < args.k.dim(0); ++t) {
    const int32_t slot = args.slots.as<int32_t>()[t];
    if (slot < 0 || slot >= room) {
      return InvalidArgument("paged_append", "slots", absl::StrCat("token ", t, " names slot ", slot, " of ", room));
    }
  }
  VisitFloating(args.k.dtype, [&](auto zero) { AppendAll<decltype(zero)>(args); });
  return absl::OkStatus();
}

absl::Status Forward(const PagedAttention& args, Stream) {
  if (absl::Status status = CheckTable(args); !status.ok()) return status;
  VisitFloating(args.q.dtype, [&](auto zero) { ForwardAll<decltype(zero)>(args); });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
