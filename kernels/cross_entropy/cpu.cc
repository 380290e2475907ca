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
Slots ScoredSlots(const CrossEntropyInputs& in, Keep keep) {
  Slots slots;
  for (int64_t i = 0; i < in.scored.dim(0); ++i) {
    const int64_t slot = in.scored.as<int32_t>()[i];
    if (keep(slot)) slots.push_back(slot);
  }
  return slots;
}

Slots ScoredSlots(const CrossEntropyInputs& in) {
  return ScoredSlots(in, [](int64_t) { return true; });
}

void Zero(TensorView view) {
  if (!view.empty()) std::memset(view.data, 0, static_cast<size_t>(view.bytes()));
}

// Zeroes the rows between the slots: dhidden may be hidden, whose rows at the slots are still to be read.
void ZeroBetween(const Slots& slots, TensorView dhidden) {
  int64_t begin = 0;
  for (const int64_t slot : slots) {
    if (begin < slot) Zero(dhidden.Rows(begin, slot));
    begin = slot + 1;
  }
  if (begin < dhidden.dim(0)) Zero(dhidden.Rows(begin, dhidden.dim(0)));
}

// A few scored tokens: their hidden states side by side and their logits, which the backward turns into dlogits in
// place.
template <typename T>
struct Chunk {
  const int64_t* slots;
  int64_t rows;
  const T* hidden;  // [rows, H]
  float* logits;    // [rows, V], divided by the temperature
  bool first;
};

// Calls body(chunk) -> Status for all slots, a chunk at a time.
template <typename T, typename Body>
absl::Status ForEachChunk(const CrossEntropyInputs& in, const Slots& slots, Body body) {
  const int64_t hidden = in.hidden.dim(1);
  const int64_t vocabulary = in.weight.dim(0);
  const auto total = static_cast<int64_t>(slots.size());
  if (total == 0) return absl::OkStatus();
  const int64_t bytes_per_row = vocabulary * static_cast<int64_t>(sizeof(float));
  const int64_t fit = std::clamp<int64_t>(in.logits_bytes / bytes_per_row, 1, total);
  // Chunks of equal size: a short last one would use the packed weights badly.
  const int64_t chunks = (total + fit - 1) / fit;
  const int64_t chunk_rows = (total + chunks - 1) / chunks;
  Scratch logits = MakeScratch(chunk_rows * vocabulary);
  std::vector<T> gathered(static_cast<size_t>(chunk_rows * hidden));
  for (int64_t first = 0; first < total; first += chunk_rows) {
    const Chunk<T> chunk = {.slots = slots.data() + first,
                            .rows = std::min(chunk_rows, total - first),
                            .hidden = gathered.data(),
                            .logits = logits.get(),
                            .first = first == 0};
    for (int64_t row = 0; row < chunk.rows; ++row) {
      std::copy_n(in.hidden.as<T>() + chunk.slots[row] * hidden, hidden, gathered.data() + row * hidden);
    }
    const ConstTensorView rows(chunk.hidden, {chunk.rows, hidden});
    RETURN_IF_ERROR(cpu::Run(MatMul{.a = rows,
                                    .b = in.weight,
                                    .transpose_b = true,
                                    .c = TensorView(chunk.logits, {chunk.rows, vocabulary}),
                                    .alpha = 1.0f / in.temperature},
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

// -sum p log p: every term has the same sign.
float Entropy(const float* row, int64_t count, float logsumexp) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) {
    const float log_p = row[i] - logsumexp;
    sum -= FastExp(log_p) * log_p;
  }
  return sum;
}

// row becomes d_loss * (softmax - onehot(label)).
void LossGradient(float* row, int64_t count, float logsumexp, int32_t label, float d_loss) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) row[i] = d_loss * FastExp(row[i] - logsumexp);
  row[label] -= d_loss;
}

// That, and d_entropy * (derivative of the entropy).
void LossAndEntropyGradient(float* row, int64_t count, float logsumexp, int32_t label, float d_loss, float entropy,
                            float d_entropy) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float log_p = row[i] - logsumexp;
    row[i] = FastExp(log_p) * (d_loss - d_entropy * (log_p + entropy));
  }
  row[label] -= d_loss;
}

// dhidden of the chunk's slots and dweight from the chunk's dlogits.
template <typename T, typename Args>
absl::Status PropagateChunk(const Args& args, const Chunk<T>& chunk) {
  const int64_t hidden = args.in.hidden.dim(1);
  const int64_t vocabulary = args.in.weight.dim(0);
  const float alpha = 1.0f / args.in.temperature;
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
      MatMul{.a = dlogits, .b = args.in.weight, .c = TensorView(dhidden.data(), {chunk.rows, hidden}), .alpha = alpha},
      Stream{}));
  for (int64_t row = 0; row < chunk.rows; ++row) {
    std::copy_n(dhidden.data() + row * hidden, hidden, args.dhidden.template as<T>() + chunk.slots[row] * hidden);
  }
  if (args.dweight.empty()) return absl::OkStatus();
  return cpu::Run(MatMul{.a = dlogits,
                         .transpose_a = true,
                         .b = ConstTensorView(chunk.hidden, {chunk.rows, hidden}),
                         .c = args.dweight,
                         .alpha = alpha,
                         .beta = chunk.first && !args.accumulate_dweight ? 0.0f : 1.0f},
                  Stream{});
}

// Sets log_prob of a row; returns its logsumexp.
template <typename Args>
float ScoreRow(const Args& args, const float* logits, int64_t slot) {
  const float logsumexp = LogSumExp(logits, args.in.weight.dim(0));
  args.log_prob.template as<float>()[slot] = logits[args.in.labels.template as<int32_t>()[slot]] - logsumexp;
  return logsumexp;
}

template <typename T>
absl::Status ForwardRows(const CrossEntropyForward& args) {
  const int64_t vocabulary = args.in.weight.dim(0);
  const Slots slots = ScoredSlots(args.in);
  return ForEachChunk<T>(args.in, slots, [&](const Chunk<T>& chunk) {
    ParallelFor(chunk.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t slot = chunk.slots[row];
        const float* logits = chunk.logits + row * vocabulary;
        const float logsumexp = ScoreRow(args, logits, slot);
        if (!args.logsumexp.empty()) args.logsumexp.as<float>()[slot] = logsumexp;
        if (!args.entropy.empty()) args.entropy.as<float>()[slot] = Entropy(logits, vocabulary, logsumexp);
      }
    });
    return absl::OkStatus();
  });
}

// dhidden and dweight before the first chunk.
template <typename Args>
void PrepareGradients(const Args& args, const Slots& slots) {
  ZeroBetween(slots, args.dhidden);
  if (slots.empty() && !args.accumulate_dweight) Zero(args.dweight);
}

template <typename T>
absl::Status BackwardRows(const CrossEntropyBackward& args) {
  const int64_t vocabulary = args.in.weight.dim(0);
  const float* d_loss = args.d_loss.as<float>();
  const float* d_entropy = args.d_entropy.as<float>();
  const float* entropy = args.entropy.as<float>();
  const Slots slots = ScoredSlots(
      args.in, [&](int64_t slot) { return d_loss[slot] != 0.0f || (d_entropy != nullptr && d_entropy[slot] != 0.0f); });
  PrepareGradients(args, slots);
  return ForEachChunk<T>(args.in, slots, [&](const Chunk<T>& chunk) {
    ParallelFor(chunk.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t slot = chunk.slots[row];
        float* logits = chunk.logits + row * vocabulary;
        const float logsumexp = args.logsumexp.as<float>()[slot];
        const int32_t label = args.in.labels.as<int32_t>()[slot];
        if (d_entropy == nullptr) {
          LossGradient(logits, vocabulary, logsumexp, label, d_loss[slot]);
        } else {
          LossAndEntropyGradient(logits, vocabulary, logsumexp, label, d_loss[slot], entropy[slot], d_entropy[slot]);
        }
      }
    });
    return PropagateChunk(args, chunk);
  });
}

template <typename T>
absl::Status ForwardBackwardRows(const CrossEntropyForwardBackward& args) {
  const int64_t vocabulary = args.in.weight.dim(0);
  const Slots slots = ScoredSlots(args.in);
  PrepareGradients(args, slots);
  return ForEachChunk<T>(args.in, slots, [&](const Chunk<T>& chunk) {
    ParallelFor(chunk.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t slot = chunk.slots[row];
        float* logits = chunk.logits + row * vocabulary;
        const float logsumexp = ScoreRow(args, logits, slot);
        LossGradient(logits, vocabulary, logsumexp, args.in.labels.as<int32_t>()[slot], args.d_loss.as<float>()[slot]);
      }
    });
    return PropagateChunk(args, chunk);
  });
}

}  // namespace

absl::Status Forward(const CrossEntropyForward& args, Stream) {
  Zero(args.log_prob);
  Zero(args.logsumexp);
  Zero(args.entropy);
  return VisitFloating(args.in.hidden.dtype, [&](auto zero) { return ForwardRows<decltype(zero)>(args); });
}

absl::Status Backward(const CrossEntropyBackward& args, Stream) {
  return VisitFloating(args.in.hidden.dtype, [&](auto zero) { return BackwardRows<decltype(zero)>(args); });
}

absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream) {
  Zero(args.log_prob);
  return VisitFloating(args.in.hidden.dtype, [&](auto zero) { return ForwardBackwardRows<decltype(zero)>(args); });
}

}  // namespace sluice::kernels::cpu
