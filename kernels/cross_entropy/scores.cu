// A cluster keeps its rows and goes through tiles of 256 words, so that a thread has the running sums of its two rows
// in registers. Where the rows are too few for all multiprocessors the vocabulary is cut into parts, and their sums are
// joined at the end, in the order of the parts.
#include <algorithm>

#include "common/status_macros.h"
#include "kernels/cross_entropy/rows.h"
#include "kernels/cross_entropy/scores.h"
#include "kernels/cross_entropy/softmax_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/gemm/gemm.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr std::string_view kKernel = "cross_entropy";
// In place of a word that does not exist; far below Sums::kNoTop, so that it never is the top itself.
constexpr float kNoLogit = -1e26f;

using Sums = SoftmaxSums<PowerOfTwo>;  // of logits in units of log 2

// What a part of the vocabulary gave for a row.
struct Partial {
  Sums sums;
  float label_logit;  // in units of log 2; 0 in the parts that do not have the label
};
static_assert(sizeof(Partial) == 16);

// A cluster's rows stay. All clusters go through the words in the same order, so a tile of them is read from memory
// once.
struct RowSchedule {
  int row_pairs, parts, column_tiles;

  __device__ int First(int part) const { return static_cast<int>(static_cast<int64_t>(part) * column_tiles / parts); }
  __device__ int Count(int cluster) const {
    const int part = cluster / row_pairs;
    return First(part + 1) - First(part);
  }
  __device__ Tile At(int cluster, int index) const { return {cluster % row_pairs, First(cluster / row_pairs) + index}; }
};

struct ScoreEpilogue {
  static constexpr int kSharedBytes = 0;
  static constexpr int kSlices = 0;
  struct State {
    Sums sums[2];  // of rows l / 4 and l / 4 + 8 of the warp's 16, over the lane's columns
    float label_logit[2] = {0.0f, 0.0f};
    int label[2];
  };

  float scale;  // log2(e) / temperature
  int vocabulary, rows, row_pairs;
  const int32_t* slots;
  const int32_t* labels;
  Partial* partials;  // [parts, rows]

  __device__ static int RowOfLane(int row, int half) {
    return row + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
  }
  __device__ int RowOfB(int column_tile, int half) const {
    return column_tile * kGemmColumns + half * (kGemmColumns / 2);
  }

  __device__ State Begin(int row) const {
    State state;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = RowOfLane(row, half);
      state.label[half] = own < rows ? labels[slots[own]] : -1;
    }
    return state;
  }

  template <int kHalf>
  __device__ __forceinline__ void Add(const float (&sums)[hopper::kSums], int first_word, State& state) const {
    Sums& of_row = state.sums[kHalf];
    float top = Sums::kNoTop;
#pragma unroll
    for (int j = 0; j < hopper::kSums / 4; ++j) {
      top = fmaxf(top, fmaxf(sums[4 * j + 2 * kHalf], sums[4 * j + 2 * kHalf + 1]));
    }
    top *= scale;
    if (top > of_row.top) of_row.RaiseTop(top);
    float exp[2] = {0.0f, 0.0f}, weighted[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < hopper::kSums / 4; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t = fmaf(sums[4 * j + 2 * kHalf + e], scale, -of_row.top);
        const float power = Exp2(t);
        exp[e] += power;
        weighted[e] = fmaf(t, power, weighted[e]);
      }
    }
    of_row.exp += exp[0] + exp[1];
    of_row.weighted += weighted[0] + weighted[1];
    const int at = state.label[kHalf] - first_word;
    if (at < 0 || at >= kGemmColumns || at % 8 / 2 != static_cast<int>(threadIdx.x) % 4) return;
#pragma unroll
    for (int j = 0; j < hopper::kSums / 4; ++j) {
      // No index that the compiler does not know: the sums have to stay in registers.
      const float logit = at % 2 == 0 ? sums[4 * j + 2 * kHalf] : sums[4 * j + 2 * kHalf + 1];
      if (j == at / 8) state.label_logit[kHalf] = scale * logit;
    }
  }

  __device__ void Slice(int, State&, int, char*) const {}
  __device__ void Take(State& state, float (&sums)[hopper::kSums], int, int column_tile) const {
    const int first_word = column_tile * kGemmColumns;
    if (first_word + kGemmColumns > vocabulary) {
      const float no_logit = kNoLogit / scale;
#pragma unroll
      for (int i = 0; i < hopper::kSums; ++i) {
        const int word = first_word + i / 4 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
        if (word >= vocabulary) sums[i] = no_logit;
      }
    }
    Add<0>(sums, first_word, state);
    Add<1>(sums, first_word, state);
  }

  __device__ void End(State& state, int row, int cluster) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Sums& sums = state.sums[half];
      float label_logit = state.label_logit[half];
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        sums.Join({__shfl_xor_sync(kFullWarp, sums.top, lanes), __shfl_xor_sync(kFullWarp, sums.exp, lanes),
                   __shfl_xor_sync(kFullWarp, sums.weighted, lanes)});
        label_logit += __shfl_xor_sync(kFullWarp, label_logit, lanes);
      }
      const int own = RowOfLane(row, half);
      if (threadIdx.x % 4 == 0 && own < rows) {
        partials[static_cast<int64_t>(cluster / row_pairs) * rows + own] = {sums, label_logit};
      }
    }
  }
};

struct ScoreArguments {
  int rows, parts, vocabulary;
  const Partial* partials;
  const int32_t* slots;
  const int32_t* labels;
  float* log_prob;
  float* logsumexp;
  float* entropy;
};

constexpr int kJoinThreads = 128;

__global__ void __launch_bounds__(kJoinThreads) JoinParts(ScoreArguments args) {
  const int row = static_cast<int>(blockIdx.x) * kJoinThreads + static_cast<int>(threadIdx.x);
  if (row >= args.rows) return;
  Partial total = args.partials[row];
  for (int part = 1; part < args.parts; ++part) {
    const Partial partial = args.partials[static_cast<int64_t>(part) * args.rows + row];
    total.sums.Join(partial.sums);
    total.label_logit += partial.label_logit;
  }
  const int slot = args.slots[row], label = args.labels[slot];
  const float log_sum = log2f(total.sums.exp);  // less the top
  const bool has_label = label >= 0 && label < args.vocabulary;
  args.log_prob[slot] = has_label ? (total.label_logit - total.sums.top - log_sum) * kLn2 : nanf("");
  if (args.logsumexp != nullptr) args.logsumexp[slot] = (total.sums.top + log_sum) * kLn2;
  if (args.entropy != nullptr) args.entropy[slot] = (log_sum - total.sums.weighted / total.sums.exp) * kLn2;
}

// Into how many parts the vocabulary is cut: as few as keep all clusters busy.
int PartsFor(int row_pairs, int column_tiles, int clusters_at_once, int most) {
  int best = 1;
  double best_time = 1e30;
  for (int parts = 1; parts <= std::min({most, column_tiles, clusters_at_once}); ++parts) {
    const int rounds = (row_pairs * parts + clusters_at_once - 1) / clusters_at_once;
    const double time = static_cast<double>(rounds) / parts;
    if (time < best_time * 0.98) {
      best = parts;
      best_time = time;
    }
  }
  return best;
}

}  // namespace

bool CanScoreFused(const CrossEntropyInputs& in) {
  return in.hidden.dtype == DType::kBFloat16 && in.hidden.dim(1) % 8 == 0 && CanBeTiled(in.weight) &&
         reinterpret_cast<uintptr_t>(in.hidden.data) % 16 == 0;
}

absl::Status ScoreFused(const CrossEntropyForward& args, void* workspace, int64_t workspace_bytes, Stream stream) {
  const CrossEntropyInputs& in = args.in;
  const int64_t scored = in.scored.dim(0), hidden_size = in.hidden.dim(1), vocabulary = in.weight.dim(0);
  const bool in_place = scored == in.hidden.dim(0);
  // A piece's gathered rows, then what its parts gave.
  const int64_t row_bytes = in_place ? 0 : hidden_size * 2;
  const int column_tiles = static_cast<int>((vocabulary + kGemmColumns - 1) / kGemmColumns);
  const int clusters = MultiprocessorCount() / kGemmClusterBlocks;
  const int64_t bytes = workspace_bytes - 256;  // less what the parts' place is rounded up by
  const auto most_rows = std::max<int64_t>(bytes / (row_bytes + static_cast<int64_t>(sizeof(Partial))), 1);
  for (int64_t first = 0; first < scored;) {
    const int64_t rows = std::min(scored - first, most_rows);
    const int row_pairs = static_cast<int>((rows + kGemmClusterRows - 1) / kGemmClusterRows);
    const int64_t room = (bytes - rows * row_bytes) / (rows * static_cast<int64_t>(sizeof(Partial)));
    const int parts = PartsFor(row_pairs, column_tiles, clusters, static_cast<int>(std::clamp<int64_t>(room, 1, 1024)));
    ConstTensorView hidden = in.hidden.Rows(first, std::min(first + rows, in.hidden.dim(0)));
    if (!in_place) {
      const TensorView gathered(workspace, DType::kBFloat16, {rows, hidden_size}, in.hidden.device);
      RETURN_IF_ERROR(GatherScoredRows(in.hidden, in.scored.as<int32_t>() + first, rows, gathered, stream));
      hidden = gathered;
    }
    auto* const partials = reinterpret_cast<Partial*>(static_cast<char*>(workspace) + Aligned(rows * row_bytes));
    const ScoreArguments scores = {.rows = static_cast<int>(rows),
                                   .parts = parts,
                                   .vocabulary = static_cast<int>(vocabulary),
                                   .partials = partials,
                                   .slots = in.scored.as<int32_t>() + first,
                                   .labels = in.labels.as<int32_t>(),
                                   .log_prob = args.log_prob.as<float>(),
                                   .logsumexp = args.logsumexp.as<float>(),
                                   .entropy = args.entropy.as<float>()};
    const ScoreEpilogue epilogue = {.scale = kLog2E / in.temperature,
                                    .vocabulary = scores.vocabulary,
                                    .rows = scores.rows,
                                    .row_pairs = row_pairs,
                                    .slots = scores.slots,
                                    .labels = scores.labels,
                                    .partials = partials};
    RETURN_IF_ERROR(LaunchGemm(kKernel, hidden, in.weight, row_pairs * parts,
                               RowSchedule{row_pairs, parts, column_tiles}, epilogue, HandleOf(stream)));
    JoinParts<<<static_cast<unsigned>((rows + kJoinThreads - 1) / kJoinThreads), kJoinThreads, 0, HandleOf(stream)>>>(
        scores);
    RETURN_IF_ERROR(LaunchStatus(kKernel));
    first += rows;
  }
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cuda
