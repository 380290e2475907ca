#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/status_macros.h"
#include "kernels/cross_entropy/backends.h"
#include "kernels/matmul/backends.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include "kernels/vector_math.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

using Slots = std::vector<int64_t>;

template <typename Keep>
Slots ScoredSlots(ConstTensorView labels, Keep keep) {
  Slots slots;
  for (int64_t slot = 0; slot < labels.dim(0); ++slot) {
    if (labels.as<int32_t>()[slot] != kIgnoredLabel && keep(slot)) slots.push_back(slot);
  }
  return slots;
}

void Zero(TensorView view) {
  if (!view.empty()) std::memset(view.data, 0, static_cast<size_t>(view.bytes()));
}

// A few scored tokens: their hidden states side by side and their logits, which the backward turns into dlogits in
// place.
template <typename T>
struct Chunk {
  const int64_t* slots;
  int64_t rows;
  const T* hidden;  // [rows, H]
  float* logits;    // [rows, V], divided by the temperature
};

// Calls body(chunk) -> Status for all slots, a chunk at a time.
template <typename T, typename Args, typename Body>
absl::Status ForEachChunk(const Args& args, const Slots& slots, Body body) {
  const int64_t hidden = args.hidden.dim(1);
  const int64_t vocabulary = args.weight.dim(0);
  const auto total = static_cast<int64_t>(slots.size());
  if (total == 0) return absl::OkStatus();
  const int64_t bytes_per_row = vocabulary * static_cast<int64_t>(sizeof(float));
  const int64_t fit = std::clamp<int64_t>(args.logits_bytes / bytes_per_row, 1, total);
  // Chunks of equal size: a short last one would use the packed weights badly.
  const int64_t chunks = (total + fit - 1) / fit;
  const int64_t chunk_rows = (total + chunks - 1) / chunks;
  Scratch logits = MakeScratch(chunk_rows * vocabulary);
  std::vector<T> gathered(static_cast<size_t>(chunk_rows * hidden));
  for (int64_t first = 0; first < total; first += chunk_rows) {
    const Chunk<T> chunk = {.slots = slots.data() + first,
                            .rows = std::min(chunk_rows, total - first),
                            .hidden = gathered.data(),
                            .logits = logits.get()};
    for (int64_t row = 0; row < chunk.rows; ++row) {
      std::copy_n(args.hidden.template as<T>() + chunk.slots[row] * hidden, hidden, gathered.data() + row * hidden);
    }
    const ConstTensorView rows(chunk.hidden, {chunk.rows, hidden});
    RETURN_IF_ERROR(cpu::Run(MatMul{.a = rows,
                                    .b = args.weight,
                                    .transpose_b = true,
                                    .c = TensorView(chunk.logits, {chunk.rows, vocabulary}),
                                    .alpha = 1.0f / args.temperature},
                             Stream{}));
    RETURN_IF_ERROR(body(chunk));
  }
  return absl::OkStatus();
}

float LogSumExp(const float* row, int64_t count) {
  float maximum = row[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < count; ++i) maximum = row[i] > maximum ? row[i] : maximum;
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += FastExp(row[i] - maximum);
  return maximum + std::log(sum);
}

// row becomes factor * (softmax - onehot(label)).
void LogitsGradient(float* row, int64_t count, float logsumexp, int32_t label, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) row[i] = factor * FastExp(row[i] - logsumexp);
  row[label] -= factor;
}

// dhidden of the chunk's slots and dweight from the chunk's dlogits.
template <typename T, typename Args>
absl::Status PropagateChunk(const Args& args, const Chunk<T>& chunk) {
  const int64_t hidden = args.hidden.dim(1);
  const int64_t vocabulary = args.weight.dim(0);
  std::vector<T> rounded;
  ConstTensorView dlogits(chunk.logits, {chunk.rows, vocabulary});
  if constexpr (!std::is_same_v<T, float>) {
    rounded.resize(static_cast<size_t>(chunk.rows * vocabulary));
    ParallelFor(chunk.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * vocabulary; i < end * vocabulary; ++i)
        rounded[static_cast<size_t>(i)] = T(chunk.logits[i]);
    });
    dlogits = ConstTensorView(static_cast<const T*>(rounded.data()), {chunk.rows, vocabulary});
  }
  std::vector<T> dhidden(static_cast<size_t>(chunk.rows * hidden));
  RETURN_IF_ERROR(cpu::Run(
      MatMul{.a = dlogits, .b = args.weight, .c = TensorView(dhidden.data(), {chunk.rows, hidden})}, Stream{}));
  for (int64_t row = 0; row < chunk.rows; ++row) {
    std::copy_n(dhidden.data() + row * hidden, hidden, args.dhidden.template as<T>() + chunk.slots[row] * hidden);
  }
  if (args.dweight.empty()) return absl::OkStatus();
  return cpu::Run(MatMul{.a = dlogits,
                         .transpose_a = true,
                         .b = ConstTensorView(chunk.hidden, {chunk.rows, hidden}),
                         .c = args.dweight,
                         .beta = 1.0f},
                  Stream{});
}

// Sets log_prob and loss of a row; returns its logsumexp.
template <typename Args>
float ScoreRow(const Args& args, const float* logits, int64_t slot) {
  const float logsumexp = LogSumExp(logits, args.weight.dim(0));
  const float log_prob = logits[args.labels.template as<int32_t>()[slot]] - logsumexp;
  args.log_prob.template as<float>()[slot] = log_prob;
  if (!args.loss.empty()) args.loss.template as<float>()[slot] = -log_prob;
  return logsumexp;
}

template <typename T>
absl::Status ForwardRows(const CrossEntropyForward& args) {
  const int64_t vocabulary = args.weight.dim(0);
  const Slots slots = ScoredSlots(args.labels, [](int64_t) { return true; });
  return ForEachChunk<T>(args, slots, [&](const Chunk<T>& chunk) {
    ParallelFor(chunk.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float logsumexp = ScoreRow(args, chunk.logits + row * vocabulary, chunk.slots[row]);
        if (!args.logsumexp.empty()) args.logsumexp.as<float>()[chunk.slots[row]] = logsumexp;
      }
    });
    return absl::OkStatus();
  });
}

template <typename T>
absl::Status BackwardRows(const CrossEntropyBackward& args) {
  const int64_t vocabulary = args.weight.dim(0);
  const float* d_loss = args.d_loss.as<float>();
  const Slots slots = ScoredSlots(args.labels, [&](int64_t slot) { return d_loss[slot] != 0.0f; });
  return ForEachChunk<T>(args, slots, [&](const Chunk<T>& chunk) {
    ParallelFor(chunk.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t slot = chunk.slots[row];
        LogitsGradient(chunk.logits + row * vocabulary, vocabulary, args.logsumexp.as<float>()[slot],
                       args.labels.as<int32_t>()[slot], d_loss[slot] / args.temperature);
      }
    });
    return PropagateChunk(args, chunk);
  });
}

template <typename T>
absl::Status ForwardBackwardRows(const CrossEntropyForwardBackward& args) {
  const int64_t vocabulary = args.weight.dim(0);
  const Slots slots = ScoredSlots(args.labels, [](int64_t) { return true; });
  return ForEachChunk<T>(args, slots, [&](const Chunk<T>& chunk) {
    ParallelFor(chunk.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t slot = chunk.slots[row];
        float* logits = chunk.logits + row * vocabulary;
        const float logsumexp = ScoreRow(args, logits, slot);
        LogitsGradient(logits, vocabulary, logsumexp, args.labels.as<int32_t>()[slot],
                       args.d_loss.as<float>()[slot] / args.temperature);
      }
    });
    return PropagateChunk(args, chunk);
  });
}

}  // namespace

absl::Status Forward(const CrossEntropyForward& args, Stream) {
  Zero(args.log_prob);
  Zero(args.loss);
  Zero(args.logsumexp);
  return VisitFloating(args.hidden.dtype, [&](auto zero) { return ForwardRows<decltype(zero)>(args); });
}

absl::Status Backward(const CrossEntropyBackward& args, Stream) {
  Zero(args.dhidden);
  return VisitFloating(args.hidden.dtype, [&](auto zero) { return BackwardRows<decltype(zero)>(args); });
}

absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream) {
  Zero(args.log_prob);
  Zero(args.loss);
  Zero(args.dhidden);
  return VisitFloating(args.hidden.dtype, [&](auto zero) { return ForwardBackwardRows<decltype(zero)>(args); });
}

}  // namespace sluice::kernels::cpu
