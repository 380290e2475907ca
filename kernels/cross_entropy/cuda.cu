// The head on the GPU: three products a piece of rows (matmul.h), and between them one kernel over the piece's logits.
//
// That kernel is bound by memory and its row is long: 152 k logits of bf16 are 300 KB, so one block has a row. Training
// reads the row once for its sum and overwrites it with dlogits in a second pass; between the two the block keeps as
// much of the row in shared memory as there is (208 of those 300 KB), and the rest is still in the L2 cache, because
// few rows are under way. So a row moves twice its size, 2 V * size bytes, where scoring alone moves it once.
#include <cfloat>

#include "common/status_macros.h"
#include "kernels/cross_entropy/backends.h"
#include "kernels/cross_entropy/pieces.h"
#include "kernels/cross_entropy/rows.h"
#include "kernels/cross_entropy/scores.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/cuda/workspace.h"
#include "kernels/matmul/matmul.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "cross_entropy";

// --- Rows of hidden and dhidden ---

constexpr int kCopyThreads = 128;
constexpr int kZeroThreads = 256;

// A row of `bytes` bytes from `from`, or zeros if that is null, by the block's threads or by one warp.
__device__ void CopyRow(const char* from, char* to, int64_t bytes, bool aligned, int thread, int threads) {
  if (aligned) {
    const auto* source = reinterpret_cast<const uint4*>(from);
    auto* target = reinterpret_cast<uint4*>(to);
    for (int64_t i = thread; i < bytes / 16; i += threads) {
      target[i] = source == nullptr ? make_uint4(0, 0, 0, 0) : source[i];
    }
  } else {
    const auto* source = reinterpret_cast<const uint16_t*>(from);
    auto* target = reinterpret_cast<uint16_t*>(to);
    for (int64_t i = thread; i < bytes / 2; i += threads) target[i] = source == nullptr ? 0 : source[i];
  }
}

// Row i of `to` is row slots[i] of `from`; zero from row `rows` on. A block a row.
__global__ void __launch_bounds__(kCopyThreads)
    GatherRows(const char* from, const int32_t* slots, int64_t rows, int64_t row_bytes, bool aligned, char* to) {
  const int64_t row = blockIdx.x;
  const char* source = row < rows ? from + slots[row] * row_bytes : nullptr;
  CopyRow(source, to + row * row_bytes, row_bytes, aligned, threadIdx.x, kCopyThreads);
}

__global__ void __launch_bounds__(kCopyThreads)
    ScatterRows(const char* from, const int32_t* slots, int64_t row_bytes, bool aligned, char* to) {
  const int64_t row = blockIdx.x;
  CopyRow(from + row * row_bytes, to + slots[row] * row_bytes, row_bytes, aligned, threadIdx.x, kCopyThreads);
}

// Zeroes the rows that are not in `slots`, and leaves those that are: dhidden may be hidden, which is still to be read.
// A warp a row: it looks for its row in `slots`, whose upper levels of the search all warps find in the cache.
__global__ void __launch_bounds__(kZeroThreads)
    ZeroOtherRows(const int32_t* slots, int64_t scored, int64_t rows, int64_t row_bytes, bool aligned, char* to) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kZeroThreads + threadIdx.x) / 32;
  if (row >= rows) return;
  int64_t begin = 0, end = scored;  // the first slot >= row is in [begin, end]
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (slots[middle] < row) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  if (begin < scored && slots[begin] == row) return;
  CopyRow(nullptr, to + row * row_bytes, row_bytes, aligned, threadIdx.x % 32, 32);
}

// --- Logits ---

enum class Task { kScore, kScoreThenGradient, kGradient };

struct RowArguments {
  void* logits;  // [.., stride]: overwritten with dlogits, unless the task is kScore
  int64_t stride;
  int vocabulary;
  int rows;    // scored ones; dlogits of the rows behind them are zero
  int cached;  // packets of a row that are kept in shared memory
  const int32_t* slots;
  const int32_t* labels;
  // By slot. Null where absent.
  const float* d_loss;
  const float* d_entropy;
  const float* saved_logsumexp;
  const float* saved_entropy;
  float* log_prob;
  float* logsumexp;
  float* entropy;
};

// e^x. For bf16 logits the hardware's, whose error of 2^-22 is lost in their rounding.
template <typename T>
__device__ __forceinline__ float Exp(float x) {
  if constexpr (sizeof(T) == 2) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
    return result;
  } else {
    return expf(x);
  }
}

// Sums over logits x relative to the greatest so far: of e^t and t e^t, t = x - top.
struct Sums {
  float top = -FLT_MAX;
  float exp = 0.0f;
  float weighted = 0.0f;
};

template <typename T>
__device__ __forceinline__ void RaiseTop(float top, Sums& sums) {
  const float step = sums.top - top;  // <= 0
  const float factor = Exp<T>(step);
  sums.weighted = factor * (sums.weighted + step * sums.exp);
  sums.exp *= factor;
  sums.top = top;
}

template <typename T, int kCount>
__device__ __forceinline__ void Add(const float (&x)[kCount], Sums& sums) {
  float top = x[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) top = fmaxf(top, x[i]);
  if (top > sums.top) RaiseTop<T>(top, sums);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float t = x[i] - sums.top;
    const float e = Exp<T>(t);
    sums.exp += e;
    sums.weighted += t * e;
  }
}

template <typename T>
__device__ __forceinline__ void WarpTotal(Sums& sums) {
  RaiseTop<T>(WarpMax(sums.top), sums);
  sums.exp = WarpSum(sums.exp);
  sums.weighted = WarpSum(sums.weighted);
}

// Every thread gets the sums over the block. REQUIRES: called once.
template <typename T, int kThreads>
__device__ __forceinline__ void BlockTotal(Sums& sums) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float top[kWarps], exp[kWarps], weighted[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  WarpTotal<T>(sums);
  if (lane == 0) {
    top[warp] = sums.top;
    exp[warp] = sums.exp;
    weighted[warp] = sums.weighted;
  }
  __syncthreads();
  sums = {};
  if (lane < kWarps) sums = {top[lane], exp[lane], weighted[lane]};
  WarpTotal<T>(sums);
}

template <typename T>
__device__ __forceinline__ void Unpack(uint4 raw, float* to) {
  const T* values = reinterpret_cast<const T*>(&raw);
#pragma unroll
  for (int i = 0; i < Packet<T>::kSize; ++i) to[i] = ToFloat(values[i]);
}

// The two numbers that make a row's dlogits: p (base - slope log p), less d_loss for the label.
struct Gradient {
  float logsumexp, base, slope;

  template <typename T>
  __device__ __forceinline__ float At(float logit) const {
    const float log_p = logit - logsumexp;
    return Exp<T>(log_p) * (base - slope * log_p);
  }
};

constexpr int kInFlight = 4;  // packets that a thread loads at once

template <typename T, Task kTask, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) RowKernel(RowArguments args) {
  constexpr int kSize = Packet<T>::kSize;
  extern __shared__ uint4 cache[];
  T* logits = static_cast<T*>(args.logits) + blockIdx.x * args.stride;
  auto* packets_of_row = reinterpret_cast<uint4*>(logits);
  const int thread = threadIdx.x;
  if (static_cast<int>(blockIdx.x) >= args.rows) {
    for (int64_t i = thread; i < args.stride / kSize; i += kThreads) packets_of_row[i] = make_uint4(0, 0, 0, 0);
    return;
  }
  // A thread has the same packets and the same element of the rest in both passes, so it only overwrites what no one
  // else reads.
  const int packets = args.vocabulary / kSize;
  const int rest = packets * kSize + thread;
  const bool has_rest = rest < args.vocabulary;
  const int slot = args.slots[blockIdx.x];
  const int label = args.labels[slot];
  // A label out of range makes the row's log-probability NaN rather than the kernel read elsewhere.
  const bool valid = label >= 0 && label < args.vocabulary;
  const int owner = label < packets * kSize ? label / kSize % kThreads : label - packets * kSize;
  const bool owns_label = valid && thread == owner;
  const float label_logit = owns_label ? ToFloat(logits[label]) : 0.0f;

  Gradient gradient = {};
  if constexpr (kTask != Task::kGradient) {
    Sums sums;
    int packet = thread;
    for (; packet + (kInFlight - 1) * kThreads < packets; packet += kInFlight * kThreads) {
      uint4 raw[kInFlight];
      float x[kInFlight * kSize];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) raw[i] = packets_of_row[packet + i * kThreads];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (kTask == Task::kScoreThenGradient && packet + i * kThreads < args.cached) {
          cache[packet + i * kThreads] = raw[i];
        }
        Unpack<T>(raw[i], x + i * kSize);
      }
      Add<T>(x, sums);
    }
    for (; packet < packets; packet += kThreads) {
      const uint4 raw = packets_of_row[packet];
      if (kTask == Task::kScoreThenGradient && packet < args.cached) cache[packet] = raw;
      float x[kSize];
      Unpack<T>(raw, x);
      Add<T>(x, sums);
    }
    if (has_rest) {
      const float x[1] = {ToFloat(logits[rest])};
      Add<T>(x, sums);
    }
    BlockTotal<T, kThreads>(sums);
    const float log_sum = logf(sums.exp);
    gradient.logsumexp = sums.top + log_sum;
    if (owns_label) args.log_prob[slot] = label_logit - gradient.logsumexp;
    if (thread == 0) {
      if (!valid) args.log_prob[slot] = nanf("");
      if (args.logsumexp != nullptr) args.logsumexp[slot] = gradient.logsumexp;
      if (args.entropy != nullptr) args.entropy[slot] = log_sum - sums.weighted / sums.exp;
    }
  } else {
    gradient.logsumexp = args.saved_logsumexp[slot];
  }

  if constexpr (kTask != Task::kScore) {
    const float d_loss = args.d_loss[slot];
    gradient.base = d_loss;
    if (args.d_entropy != nullptr) {
      gradient.slope = args.d_entropy[slot];
      gradient.base -= gradient.slope * args.saved_entropy[slot];
    }
    const auto load = [&](int packet) {
      return kTask == Task::kScoreThenGradient && packet < args.cached ? cache[packet] : packets_of_row[packet];
    };
    const auto replace = [&](int packet, uint4 raw) {
      float x[kSize];
      Unpack<T>(raw, x);
      Packet<T> result;
#pragma unroll
      for (int i = 0; i < kSize; ++i) result.v[i] = gradient.At<T>(x[i]);
      Store(logits + static_cast<int64_t>(packet) * kSize, result);
    };
    int packet = thread;
    for (; packet + (kInFlight - 1) * kThreads < packets; packet += kInFlight * kThreads) {
      uint4 raw[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) raw[i] = load(packet + i * kThreads);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) replace(packet + i * kThreads, raw[i]);
    }
    for (; packet < packets; packet += kThreads) replace(packet, load(packet));
    if (has_rest) logits[rest] = FromFloat<T>(gradient.At<T>(ToFloat(logits[rest])));
    // Over what the loop wrote there: one element is not worth a comparison in each of the others.
    if (owns_label) logits[label] = FromFloat<T>(gradient.At<T>(label_logit) - d_loss);
  }
}

// Rows short enough for two of them on a multiprocessor: while the threads of one wait for each other, the other loads.
constexpr int64_t kShortRow = int64_t{104} << 10;
constexpr int64_t kLongCache = int64_t{208} << 10;

template <typename T, Task kTask, int kThreads>
absl::Status LaunchRows(const RowArguments& args, int64_t grid, int64_t cache_bytes, Stream stream) {
  const auto kernel = RowKernel<T, kTask, kThreads>;
  if (cache_bytes > 0) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(cache_bytes));
  }
  kernel<<<static_cast<unsigned>(grid), kThreads, static_cast<size_t>(cache_bytes), HandleOf(stream)>>>(args);
  return LaunchStatus(kKernel);
}

template <typename T>
absl::Status RunRows(Task task, RowArguments args, int64_t grid, Stream stream) {
  constexpr int64_t kSize = 16 / sizeof(T);
  const int64_t row_bytes = args.vocabulary / kSize * 16;
  if (task == Task::kScore) return LaunchRows<T, Task::kScore, 512>(args, args.rows, 0, stream);
  if (task == Task::kGradient) return LaunchRows<T, Task::kGradient, 512>(args, grid, 0, stream);
  const int64_t cache_bytes = std::min(row_bytes, row_bytes <= kShortRow ? kShortRow : kLongCache);
  args.cached = static_cast<int>(cache_bytes / 16);
  return row_bytes <= kShortRow ? LaunchRows<T, Task::kScoreThenGradient, 512>(args, grid, cache_bytes, stream)
                                : LaunchRows<T, Task::kScoreThenGradient, 1024>(args, grid, cache_bytes, stream);
}

// --- Pieces ---

bool Aligned16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// The memory of a call and the streams of its own kernels and of the products, whose workspace is behind ours.
struct Setup {
  CrossEntropyPieces pieces;
  Workspace workspace;
  Stream stream;
  Stream products;
  int64_t scored;
  bool all;        // every slot is scored: rows are used where they lie
  bool aligned_h;  // rows of hidden are whole packets
};

absl::StatusOr<Setup> Prepare(const CrossEntropyInputs& in, Stream stream) {
  const int64_t scored = in.scored.dim(0);
  const CrossEntropyPieces pieces(scored, in.hidden.dim(1), in.weight.dim(0), in.hidden.dtype, in.logits_bytes);
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Take(kKernel, stream, pieces.bytes));
  Stream products = stream;
  if (workspace.data() == stream.workspace) {
    products.workspace = workspace.at<void>(pieces.bytes);
    products.workspace_bytes -= pieces.bytes;
  }
  return Setup{.pieces = pieces,
               .workspace = std::move(workspace),
               .stream = stream,
               .products = products,
               .scored = scored,
               .all = scored == in.hidden.dim(0),
               .aligned_h = in.hidden.dim(1) * SizeOf(in.hidden.dtype) % 16 == 0};
}

struct Piece {
  int64_t first;   // index of its first row in `scored`
  int64_t rows;    // scored ones
  int64_t padded;  // rows that are computed
  bool in_place;   // hidden is a part of the argument, and so may dhidden be
  ConstTensorView hidden;
  TensorView logits;  // strided
};

// Computes the piece of logits that begins at scored row `first`.
absl::StatusOr<Piece> ComputeLogits(const CrossEntropyInputs& in, const Setup& setup, int64_t first) {
  const int64_t hidden_size = in.hidden.dim(1);
  const DType dtype = in.hidden.dtype;
  const Device device = in.hidden.device;
  Piece piece = {.first = first, .rows = std::min(setup.pieces.piece_rows, setup.scored - first)};
  piece.padded = setup.pieces.PaddedRows(piece.rows);
  piece.in_place = setup.all && piece.rows == piece.padded;
  piece.logits = TensorView(setup.workspace.data(), dtype, {piece.padded, in.weight.dim(0)}, device);
  piece.logits.row_stride = setup.pieces.logits_stride;
  if (piece.in_place) {
    piece.hidden = in.hidden.Rows(first, first + piece.rows);
  } else {
    char* rows = setup.workspace.at<char>(setup.pieces.rows_offset);
    const TensorView gathered(rows, dtype, {piece.padded, hidden_size}, device);
    piece.hidden = gathered;
    GatherScoredRows(in.hidden, in.scored.as<int32_t>() + first, piece.rows, gathered, setup.stream);
    RETURN_IF_ERROR(LaunchStatus(kKernel));
  }
  RETURN_IF_ERROR(kernels::Run(
      MatMul{.a = piece.hidden, .b = in.weight, .transpose_b = true, .c = piece.logits, .alpha = 1.0f / in.temperature},
      setup.products));
  return piece;
}

RowArguments RowArgumentsOf(const CrossEntropyInputs& in, const Piece& piece) {
  return {.logits = piece.logits.data,
          .stride = piece.logits.row_stride,
          .vocabulary = static_cast<int>(in.weight.dim(0)),
          .rows = static_cast<int>(piece.rows),
          .slots = in.scored.as<int32_t>() + piece.first,
          .labels = in.labels.as<int32_t>()};
}

absl::Status RunRows(Task task, const RowArguments& args, const Piece& piece, Stream stream) {
  return VisitFloating(piece.logits.dtype, [&](auto zero) {
    return RunRows<DeviceType<decltype(zero)>>(task, args, piece.padded, stream);
  });
}

// dweight and dhidden from a piece whose logits have become dlogits.
template <typename Args>
absl::Status Propagate(const Args& args, const Setup& setup, const Piece& piece) {
  const CrossEntropyInputs& in = args.in;
  const float alpha = 1.0f / in.temperature;
  // dweight first: dhidden may overwrite the rows of hidden.
  if (!args.dweight.empty()) {
    RETURN_IF_ERROR(kernels::Run(MatMul{.a = piece.logits,
                                        .transpose_a = true,
                                        .b = piece.hidden,
                                        .c = args.dweight,
                                        .alpha = alpha,
                                        .beta = piece.first == 0 && !args.accumulate_dweight ? 0.0f : 1.0f},
                                 setup.products));
  }
  TensorView rows = args.dhidden;
  if (piece.in_place) {
    rows = rows.Rows(piece.first, piece.first + piece.rows);
  } else {
    rows = TensorView(setup.workspace.at<void>(setup.pieces.dhidden_offset), rows.dtype, {piece.padded, rows.dim(1)},
                      rows.device);
  }
  RETURN_IF_ERROR(kernels::Run(MatMul{.a = piece.logits, .b = in.weight, .c = rows, .alpha = alpha}, setup.products));
  if (piece.in_place) return absl::OkStatus();
  ScatterRows<<<static_cast<unsigned>(piece.rows), kCopyThreads, 0, HandleOf(setup.stream)>>>(
      static_cast<const char*>(rows.data), in.scored.as<int32_t>() + piece.first, rows.dim(1) * SizeOf(rows.dtype),
      setup.aligned_h && Aligned16(args.dhidden.data), static_cast<char*>(args.dhidden.data));
  return LaunchStatus(kKernel);
}

void Zero(TensorView view, Stream stream) {
  if (!view.empty()) cudaMemsetAsync(view.data, 0, static_cast<size_t>(view.bytes()), HandleOf(stream));
}

// Zeroes what no piece writes: rows of dhidden that are not scored, and dweight if there is no piece at all.
template <typename Args>
absl::Status PrepareGradients(const Args& args, const Setup& setup) {
  const TensorView dhidden = args.dhidden;
  if (!setup.all) {
    const int64_t rows = dhidden.dim(0);
    constexpr int64_t kRowsPerBlock = kZeroThreads / 32;
    ZeroOtherRows<<<static_cast<unsigned>((rows + kRowsPerBlock - 1) / kRowsPerBlock), kZeroThreads, 0,
                    HandleOf(setup.stream)>>>(
        args.in.scored.template as<int32_t>(), setup.scored, rows, dhidden.dim(1) * SizeOf(dhidden.dtype),
        setup.aligned_h && Aligned16(dhidden.data), static_cast<char*>(dhidden.data));
  }
  if (setup.scored == 0 && !args.accumulate_dweight) Zero(args.dweight, setup.stream);
  return LaunchStatus(kKernel);
}

}  // namespace

void GatherScoredRows(ConstTensorView hidden, const int32_t* slots, int64_t rows, TensorView to, Stream stream) {
  const int64_t row_bytes = hidden.shape.row_elements() * SizeOf(hidden.dtype);
  const bool aligned = row_bytes % 16 == 0 && Aligned16(hidden.data);
  GatherRows<<<static_cast<unsigned>(to.dim(0)), kCopyThreads, 0, HandleOf(stream)>>>(
      static_cast<const char*>(hidden.data), slots, rows, row_bytes, aligned, static_cast<char*>(to.data));
}

absl::Status Forward(const CrossEntropyForward& args, Stream stream) {
  ASSIGN_OR_RETURN(const Setup setup, Prepare(args.in, stream));
  if (!setup.all) {
    Zero(args.log_prob, stream);
    Zero(args.logsumexp, stream);
    Zero(args.entropy, stream);
  }
  if (CanScoreFused(args.in)) return ScoreFused(args, setup.workspace.data(), setup.pieces.bytes, stream);
  for (int64_t first = 0; first < setup.scored; first += setup.pieces.piece_rows) {
    ASSIGN_OR_RETURN(const Piece piece, ComputeLogits(args.in, setup, first));
    RowArguments rows = RowArgumentsOf(args.in, piece);
    rows.log_prob = args.log_prob.as<float>();
    rows.logsumexp = args.logsumexp.as<float>();
    rows.entropy = args.entropy.as<float>();
    RETURN_IF_ERROR(RunRows(Task::kScore, rows, piece, stream));
  }
  return LaunchStatus(kKernel);
}

absl::Status Backward(const CrossEntropyBackward& args, Stream stream) {
  ASSIGN_OR_RETURN(const Setup setup, Prepare(args.in, stream));
  RETURN_IF_ERROR(PrepareGradients(args, setup));
  for (int64_t first = 0; first < setup.scored; first += setup.pieces.piece_rows) {
    ASSIGN_OR_RETURN(const Piece piece, ComputeLogits(args.in, setup, first));
    RowArguments rows = RowArgumentsOf(args.in, piece);
    rows.d_loss = args.d_loss.as<float>();
    rows.d_entropy = args.d_entropy.as<float>();
    rows.saved_logsumexp = args.logsumexp.as<float>();
    rows.saved_entropy = args.entropy.as<float>();
    RETURN_IF_ERROR(RunRows(Task::kGradient, rows, piece, stream));
    RETURN_IF_ERROR(Propagate(args, setup, piece));
  }
  return LaunchStatus(kKernel);
}

absl::Status ForwardBackward(const CrossEntropyForwardBackward& args, Stream stream) {
  ASSIGN_OR_RETURN(const Setup setup, Prepare(args.in, stream));
  if (!setup.all) Zero(args.log_prob, stream);
  RETURN_IF_ERROR(PrepareGradients(args, setup));
  for (int64_t first = 0; first < setup.scored; first += setup.pieces.piece_rows) {
    ASSIGN_OR_RETURN(const Piece piece, ComputeLogits(args.in, setup, first));
    RowArguments rows = RowArgumentsOf(args.in, piece);
    rows.d_loss = args.d_loss.as<float>();
    rows.log_prob = args.log_prob.as<float>();
    RETURN_IF_ERROR(RunRows(Task::kScoreThenGradient, rows, piece, stream));
    RETURN_IF_ERROR(Propagate(args, setup, piece));
  }
  return LaunchStatus(kKernel);
}

}  // namespace sluice::kernels::cuda
