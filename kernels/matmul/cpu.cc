#include <algorithm>
#include <vector>

#include "kernels/matmul/backends.h"
#include "kernels/matmul/gemm_cpu.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include "kernels/visit_dtype.h"

namespace sluice::kernels::cpu {
namespace {

// Blocks that the caches hold: a right panel of depth x 16 and a left panel of depth x 6 in 32 KiB of first-level
// cache, a left block of depth x 144 in half of a 512 KiB second-level cache, a right block of depth x 3072 in the
// third level.
constexpr int64_t kBlockDepth = 352;
constexpr int64_t kBlockRows = 24 * kTileRows;
constexpr int64_t kBlockColumns = 192 * kTileColumns;

// Up to so many rows the left operand stays in the second-level cache while panels of the right one pass.
constexpr int64_t kFewRows = 64;

struct Problem {
  int64_t rows, columns, depth;
  float alpha, beta;
};

// The bias of one column as fp32; 0 without a bias.
template <typename Out>
float BiasAt(const Out* bias, int64_t column) {
  return bias == nullptr ? 0.0f : static_cast<float>(bias[column]);
}

// Splits the depth into equal steps of at most kBlockDepth, so that no short one is left over.
int64_t DepthStep(int64_t depth) {
  const int64_t steps = (depth + kBlockDepth - 1) / kBlockDepth;
  return std::max<int64_t>((depth + steps - 1) / std::max<int64_t>(steps, 1), 1);
}

// out = alpha * left * right + beta * out for one block of columns; `out` is its corner.
template <typename T>
void MultiplyColumns(Operand<T> left, Operand<T> right, const Problem& problem, float* packed_right, float* packed_left,
                     float* out, int64_t out_stride) {
  const int64_t depth_step = DepthStep(problem.depth);
  const int64_t left_floats = RoundUp(kBlockRows, kTileRows) * depth_step;
  for (int64_t step = 0; step < problem.depth; step += depth_step) {
    const int64_t depth = std::min(depth_step, problem.depth - step);
    const float beta = step == 0 ? problem.beta : 1.0f;

    const int64_t panels = (problem.columns + kTileColumns - 1) / kTileColumns;
    ParallelFor(panels, GrainOf(depth * kTileColumns), [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kTileColumns;
      const int64_t last = std::min(end * kTileColumns, problem.columns);
      PackRight<T>({right.at(step, first), right.stride, right.transposed}, depth, last - first,
                   packed_right + first * depth);
    });

    // Rows are split in whole tiles. Few rows and many columns happen too (a small batch): then columns are split.
    const int64_t row_tiles = (problem.rows + kTileRows - 1) / kTileRows;
    const bool by_rows = problem.rows >= problem.columns / 8;
    const int64_t items = by_rows ? row_tiles : panels;
    ParallelParts(items, 1, [&](int64_t part, int64_t begin, int64_t end) {
      const int64_t first_row = by_rows ? begin * kTileRows : 0;
      const int64_t last_row = by_rows ? std::min(end * kTileRows, problem.rows) : problem.rows;
      const int64_t first_column = by_rows ? 0 : begin * kTileColumns;
      const int64_t last_column = by_rows ? problem.columns : std::min(end * kTileColumns, problem.columns);
      float* block = packed_left + part * left_floats;
      for (int64_t row = first_row; row < last_row; row += kBlockRows) {
        const int64_t rows = std::min(kBlockRows, last_row - row);
        PackLeft<T>({left.at(row, step), left.stride, left.transposed}, rows, depth, block);
        MultiplyPacked(block, depth, packed_right + first_column * depth, depth, rows, last_column - first_column,
                       depth, problem.alpha, beta, out + row * out_stride + first_column, out_stride);
      }
    });
  }
}

template <typename T, typename Out>
void Multiply(Operand<T> left, Operand<T> right, const Problem& problem, const Out* bias, Out* out,
              int64_t out_stride) {
  const int64_t depth_step = DepthStep(problem.depth);
  const int64_t block_columns = std::min(kBlockColumns, RoundUp(problem.columns, kTileColumns));
  Scratch packed_right = MakeScratch(depth_step * block_columns);
  Scratch packed_left = MakeScratch(PartCount(int64_t{1} << 40, 1) * depth_step * kBlockRows);
  constexpr bool kDirect = std::is_same_v<Out, float>;
  Scratch sums = kDirect ? nullptr : MakeScratch(problem.rows * block_columns);
  for (int64_t column = 0; column < problem.columns; column += block_columns) {
    Problem block = problem;
    block.columns = std::min(block_columns, problem.columns - column);
    const Operand<T> block_right = {right.at(0, column), right.stride, right.transposed};
    if constexpr (kDirect) {
      MultiplyColumns(left, block_right, block, packed_right.get(), packed_left.get(), out + column, out_stride);
      if (bias == nullptr) continue;
      ParallelFor(problem.rows, GrainOf(block.columns), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          float* to = out + row * out_stride + column;
          for (int64_t i = 0; i < block.columns; ++i) to[i] += bias[column + i];
        }
      });
    } else {
      // A bf16 result is rounded once, so its sums are kept in fp32 until the depth is through.
      block.beta = 0.0f;
      MultiplyColumns(left, block_right, block, packed_right.get(), packed_left.get(), sums.get(), block.columns);
      ParallelFor(problem.rows, GrainOf(block.columns), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const float* from = sums.get() + row * block.columns;
          Out* to = out + row * out_stride + column;
          if (problem.beta == 0.0f) {
            for (int64_t i = 0; i < block.columns; ++i) to[i] = Out(from[i] + BiasAt(bias, column + i));
          } else {
            for (int64_t i = 0; i < block.columns; ++i) {
              to[i] = Out(from[i] + problem.beta * static_cast<float>(to[i]));
            }
          }
        }
      });
    }
  }
}

// Decoding: so few rows that the right operand is packed one panel at a time, right where it is used, instead of being
// written to memory and read again. The sums are those of Multiply, step by step.
template <typename T, typename Out>
void MultiplyFewRows(Operand<T> left, Operand<T> right, const Problem& problem, const Out* bias, Out* out,
                     int64_t out_stride) {
  const int64_t depth_step = DepthStep(problem.depth);
  const int64_t padded_rows = RoundUp(problem.rows, kTileRows);
  Scratch packed_left = MakeScratch(padded_rows * problem.depth);
  for (int64_t step = 0; step < problem.depth; step += depth_step) {
    PackLeft<T>({left.at(0, step), left.stride, left.transposed}, problem.rows,
                std::min(depth_step, problem.depth - step), packed_left.get() + padded_rows * step);
  }
  const int64_t panels = (problem.columns + kTileColumns - 1) / kTileColumns;
  ParallelFor(panels, GrainOf(problem.depth * kTileColumns), [&](int64_t begin, int64_t end) {
    Scratch packed_right = MakeScratch(depth_step * kTileColumns);
    Scratch sums = MakeScratch(problem.rows * kTileColumns);
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = panel * kTileColumns;
      const int64_t columns = std::min(kTileColumns, problem.columns - column);
      if (problem.depth == 0) std::fill_n(sums.get(), problem.rows * kTileColumns, 0.0f);
      for (int64_t step = 0; step < problem.depth; step += depth_step) {
        const int64_t depth = std::min(depth_step, problem.depth - step);
        PackRight<T>({right.at(step, column), right.stride, right.transposed}, depth, columns, packed_right.get());
        MultiplyPacked(packed_left.get() + padded_rows * step, depth, packed_right.get(), depth, problem.rows, columns,
                       depth, problem.alpha, step == 0 ? 0.0f : 1.0f, sums.get(), kTileColumns);
      }
      for (int64_t row = 0; row < problem.rows; ++row) {
        const float* from = sums.get() + row * kTileColumns;
        Out* to = out + row * out_stride + column;
        for (int64_t i = 0; i < columns; ++i) {
          to[i] = problem.beta == 0.0f ? Out(from[i] + BiasAt(bias, column + i))
                                       : Out(from[i] + problem.beta * static_cast<float>(to[i]));
        }
      }
    }
  });
}

std::vector<float> Widened(ConstTensorView matrix) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(matrix.elements()));
  for (int64_t row = 0; row < matrix.dim(0); ++row) {
    const Float8* from = matrix.as<Float8>() + row * matrix.row_stride;
    for (int64_t i = 0; i < matrix.dim(1); ++i) values.push_back(static_cast<float>(from[i]));
  }
  return values;
}

// A reference, not a fast one.
absl::Status RunFloat8(const MatMul& args, Stream stream) {
  const std::vector<float> a = Widened(args.a), b = Widened(args.b);
  MatMul wide = args;
  wide.a = ConstTensorView(a.data(), args.a.shape);
  wide.b = ConstTensorView(b.data(), args.b.shape);
  wide.alpha *= *args.scale_a.as<float>() * *args.scale_b.as<float>();
  return cpu::Run(wide, stream);
}

}  // namespace

absl::Status Run(const MatMul& args, Stream stream) {
  if (args.a.dtype == DType::kFloat8) return RunFloat8(args, stream);
  const Problem problem = {.rows = args.c.dim(0),
                           .columns = args.c.dim(1),
                           .depth = args.a.dim(args.transpose_a ? 0 : 1),
                           .alpha = args.alpha,
                           .beta = args.beta};
  VisitFloating(args.a.dtype, [&](auto input) {
    using T = decltype(input);
    const Operand<T> left = {args.a.as<T>(), args.a.row_stride, args.transpose_a};
    const Operand<T> right = {args.b.as<T>(), args.b.row_stride, args.transpose_b};
    VisitFloating(args.c.dtype, [&](auto output) {
      using Out = decltype(output);
      if (problem.rows <= kFewRows && !args.transpose_a && args.transpose_b) {
        MultiplyFewRows(left, right, problem, args.bias.as<Out>(), args.c.as<Out>(), args.c.row_stride);
      } else {
        Multiply(left, right, problem, args.bias.as<Out>(), args.c.as<Out>(), args.c.row_stride);
      }
    });
  });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
