#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "common/status_macros.h"
#include "kernels/distillation/backends.h"
#include "kernels/matmul/backends.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include "kernels/vector_math.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

// A probability of all others that is smaller has no logarithm to speak of.
constexpr double kLeastRest = 1e-30;

void Zero(TensorView view) {
  if (!view.empty()) std::memset(view.data, 0, static_cast<size_t>(view.bytes()));
}

// Zeroes the rows between the slots: dhidden may be hidden, whose rows at the slots are still to be read.
void ZeroBetween(ConstTensorView scored, TensorView dhidden) {
  int64_t begin = 0;
  for (int64_t i = 0; i < scored.dim(0); ++i) {
    const int64_t slot = scored.as<int32_t>()[i];
    if (begin < slot) Zero(dhidden.Rows(begin, slot));
    begin = slot + 1;
  }
  if (begin < dhidden.dim(0)) Zero(dhidden.Rows(begin, dhidden.dim(0)));
}

// log sum exp(scale * row), with sums in double.
double LogSumExp(const float* row, int64_t count, float scale) {
  float maximum = row[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < count; ++i) maximum = row[i] > maximum ? row[i] : maximum;
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += FastExp((row[i] - maximum) * scale);
  return static_cast<double>(maximum) * scale + std::log(sum);
}

// What a row's divergence and its derivative are made of.
struct Row {
  Divergence divergence;
  float scale;  // 1 / temperature
  double student_logsumexp, teacher_logsumexp;

  float LogQ(float z) const { return static_cast<float>(static_cast<double>(z) * scale - student_logsumexp); }
  float LogP(float y) const { return static_cast<float>(static_cast<double>(y) * scale - teacher_logsumexp); }
  bool forward() const { return divergence == Divergence::kForwardKl; }
};

double WholeDivergence(const Row& row, const float* student, const float* teacher, int64_t count) {
  double sum = 0;
  if (row.forward()) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) {
      const float log_p = row.LogP(teacher[i]);
      sum += static_cast<double>(FastExp(log_p)) * (static_cast<double>(log_p) - row.LogQ(student[i]));
    }
  } else {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) {
      const float log_q = row.LogQ(student[i]);
      sum += static_cast<double>(FastExp(log_q)) * (static_cast<double>(log_q) - row.LogP(teacher[i]));
    }
  }
  return sum;
}

// Over the listed tokens and all others together.
struct Listed {
  double divergence = 0;
  double student_rest = 0, teacher_rest = 0;  // q0, p0; at least kLeastRest

  double log_ratio() const { return std::log(student_rest / teacher_rest); }  // log q0 - log p0
};

Listed ListedDivergence(const Row& row, const float* student, const float* teacher, int64_t count,
                        const std::vector<uint8_t>& is_listed) {
  Listed listed;
  for (int64_t i = 0; i < count; ++i) {
    const float log_p = row.LogP(teacher[i]), log_q = row.LogQ(student[i]);
    const double p = FastExp(log_p), q = FastExp(log_q), difference = static_cast<double>(log_p) - log_q;
    if (is_listed[static_cast<size_t>(i)] != 0) {
      listed.divergence += row.forward() ? p * difference : -q * difference;
    } else {
      listed.teacher_rest += p;
      listed.student_rest += q;
    }
  }
  listed.teacher_rest = std::max(listed.teacher_rest, kLeastRest);
  listed.student_rest = std::max(listed.student_rest, kLeastRest);
  listed.divergence +=
      row.forward() ? -listed.teacher_rest * listed.log_ratio() : listed.student_rest * listed.log_ratio();
  return listed;
}

// 1 for the `top_k` largest of `row`, of equal ones those of the lower ids.
void MarkLargest(const float* row, int64_t count, int64_t top_k, std::vector<int32_t>& order,
                 std::vector<uint8_t>& is_listed) {
  order.resize(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::nth_element(order.begin(), order.begin() + top_k - 1, order.end(),
                   [&](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
  is_listed.assign(static_cast<size_t>(count), 0);
  for (int64_t i = 0; i < top_k; ++i) is_listed[static_cast<size_t>(order[static_cast<size_t>(i)])] = 1;
}

// `student` becomes dz; `factor` is d_divergence times the temperature, `d_nll` goes with the distribution at
// temperature 1.
void WriteGradient(const Row& row, float* student, const float* teacher, int64_t count, const Listed& listed,
                   const std::vector<uint8_t>& is_listed, float factor, float d_nll, double nll_logsumexp) {
  const auto rest_ratio = static_cast<float>(listed.teacher_rest / listed.student_rest);
  const auto rest_log_ratio = static_cast<float>(listed.log_ratio());
  const auto divergence = static_cast<float>(listed.divergence);
  const bool all_listed = is_listed.empty();
  const bool forward = row.forward();
  for (int64_t i = 0; i < count; ++i) {
    const float z = student[i];
    const float log_q = row.LogQ(z), log_p = row.LogP(teacher[i]), q = FastExp(log_q);
    const bool own = all_listed || is_listed[static_cast<size_t>(i)] != 0;
    float d = 0;
    if (forward) {
      d = own ? q - FastExp(log_p) : q - q * rest_ratio;
    } else {
      d = q * ((own ? log_q - log_p : rest_log_ratio) - divergence);
    }
    d *= factor;
    if (d_nll != 0.0f) d += d_nll * FastExp(static_cast<float>(z - nll_logsumexp));
    student[i] = d;
  }
}

// A few scored tokens: their states side by side and both models' logits.
template <typename T>
struct Piece {
  int64_t first = 0, rows = 0;  // in `scored`
  std::vector<T> hidden;        // [rows, H]
  std::vector<T> teacher;       // [rows, G]
  float* student_logits;        // [rows, V]
  float* teacher_logits;        // [rows, V]
};

template <typename T>
void Gather(ConstTensorView from, ConstTensorView scored, int64_t first, int64_t rows, std::vector<T>& to) {
  const int64_t width = from.dim(1);
  to.resize(static_cast<size_t>(rows * width));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t slot = scored.as<int32_t>()[first + row];
    std::copy_n(from.as<T>() + slot * width, width, to.data() + row * width);
  }
}

template <typename T>
absl::Status Logits(const std::vector<T>& hidden, int64_t rows, ConstTensorView weight, float* logits) {
  return cpu::Run(MatMul{.a = ConstTensorView(hidden.data(), {rows, weight.dim(1)}),
                         .b = weight,
                         .transpose_b = true,
                         .c = TensorView(logits, {rows, weight.dim(0)})},
                  Stream{});
}

// dhidden of the piece's slots and dweight from dz, which lies in student_logits.
template <typename T>
absl::Status Propagate(const DistillationForwardBackward& args, const Piece<T>& piece) {
  const int64_t width = args.in.hidden.dim(1), vocabulary = args.in.weight.dim(0);
  std::vector<T> rounded;
  ConstTensorView dz(piece.student_logits, {piece.rows, vocabulary});
  if constexpr (!std::is_same_v<T, float>) {
    rounded.resize(static_cast<size_t>(piece.rows * vocabulary));
    for (size_t i = 0; i < rounded.size(); ++i) rounded[i] = T(piece.student_logits[i]);
    dz = ConstTensorView(static_cast<const T*>(rounded.data()), {piece.rows, vocabulary});
  }
  std::vector<T> dhidden(static_cast<size_t>(piece.rows * width));
  RETURN_IF_ERROR(
      cpu::Run(MatMul{.a = dz, .b = args.in.weight, .c = TensorView(dhidden.data(), {piece.rows, width})}, Stream{}));
  for (int64_t row = 0; row < piece.rows; ++row) {
    const int64_t slot = args.in.scored.as<int32_t>()[piece.first + row];
    std::copy_n(dhidden.data() + row * width, width, args.dhidden.as<T>() + slot * width);
  }
  if (args.dweight.empty()) return absl::OkStatus();
  return cpu::Run(MatMul{.a = dz,
                         .transpose_a = true,
                         .b = ConstTensorView(piece.hidden.data(), {piece.rows, width}),
                         .c = args.dweight,
                         .beta = piece.first == 0 && !args.accumulate_dweight ? 0.0f : 1.0f},
                  Stream{});
}

// With `backward` null the logits are left as they are.
template <typename T>
void ComputeRows(const DistillationInputs& in, const Piece<T>& piece, TensorView divergence, TensorView log_prob,
                 const DistillationForwardBackward* backward) {
  const int64_t vocabulary = in.weight.dim(0);
  const bool whole = in.top_k == 0 || in.top_k >= vocabulary;
  const float scale = 1.0f / in.temperature;
  ParallelFor(piece.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> order;
    std::vector<uint8_t> is_listed;  // empty: all are
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = in.scored.as<int32_t>()[piece.first + i];
      const int32_t label = in.labels.as<int32_t>()[slot];
      float* student = piece.student_logits + i * vocabulary;
      const float* teacher = piece.teacher_logits + i * vocabulary;
      const Row row = {.divergence = in.divergence,
                       .scale = scale,
                       .student_logsumexp = LogSumExp(student, vocabulary, scale),
                       .teacher_logsumexp = LogSumExp(teacher, vocabulary, scale)};
      const double nll_logsumexp =
          in.temperature == 1.0f ? row.student_logsumexp : LogSumExp(student, vocabulary, 1.0f);
      Listed listed = {.divergence = 0, .student_rest = 1, .teacher_rest = 1};
      if (whole) {
        listed.divergence = WholeDivergence(row, student, teacher, vocabulary);
      } else {
        MarkLargest(teacher, vocabulary, in.top_k, order, is_listed);
        listed = ListedDivergence(row, student, teacher, vocabulary, is_listed);
      }
      const double squared = static_cast<double>(in.temperature) * in.temperature;
      divergence.as<float>()[slot] = static_cast<float>(squared * listed.divergence);
      log_prob.as<float>()[slot] = static_cast<float>(student[label] - nll_logsumexp);
      if (backward == nullptr) continue;
      WriteGradient(row, student, teacher, vocabulary, listed, is_listed, backward->d_divergence * in.temperature,
                    backward->d_nll, nll_logsumexp);
      student[label] -= backward->d_nll;
    }
  });
}

template <typename T>
absl::Status Compute(const DistillationInputs& in, TensorView divergence, TensorView log_prob,
                     const DistillationForwardBackward* backward) {
  const int64_t total = in.scored.dim(0), vocabulary = in.weight.dim(0);
  if (backward != nullptr) {
    ZeroBetween(in.scored, backward->dhidden);
    if (total == 0 && !backward->accumulate_dweight) Zero(backward->dweight);
  }
  if (total == 0) return absl::OkStatus();
  const int64_t fit = DistillationPieceRows(total, vocabulary, in.logits_bytes);
  // Pieces of equal size: a short last one would use the packed weights badly.
  const int64_t pieces = (total + fit - 1) / fit;
  const int64_t piece_rows = (total + pieces - 1) / pieces;
  Scratch student_logits = MakeScratch(piece_rows * vocabulary), teacher_logits = MakeScratch(piece_rows * vocabulary);
  Piece<T> piece;
  piece.student_logits = student_logits.get();
  piece.teacher_logits = teacher_logits.get();
  for (piece.first = 0; piece.first < total; piece.first += piece_rows) {
    piece.rows = std::min(piece_rows, total - piece.first);
    Gather(in.hidden, in.scored, piece.first, piece.rows, piece.hidden);
    Gather(in.teacher_hidden, in.scored, piece.first, piece.rows, piece.teacher);
    RETURN_IF_ERROR(Logits(piece.hidden, piece.rows, in.weight, piece.student_logits));
    RETURN_IF_ERROR(Logits(piece.teacher, piece.rows, in.teacher_weight, piece.teacher_logits));
    ComputeRows(in, piece, divergence, log_prob, backward);
    if (backward != nullptr) RETURN_IF_ERROR(Propagate(*backward, piece));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Forward(const DistillationForward& args, Stream) {
  Zero(args.divergence);
  Zero(args.log_prob);
  return VisitFloating(args.in.hidden.dtype, [&](auto zero) {
    return Compute<decltype(zero)>(args.in, args.divergence, args.log_prob, /*backward=*/nullptr);
  });
}

absl::Status ForwardBackward(const DistillationForwardBackward& args, Stream) {
  Zero(args.divergence);
  Zero(args.log_prob);
  return VisitFloating(args.in.hidden.dtype, [&](auto zero) {
    return Compute<decltype(zero)>(args.in, args.divergence, args.log_prob, &args);
  });
}

}  // namespace sluice::kernels::cpu
