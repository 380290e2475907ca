#include "kernels/matmul/gemm_cpu.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace sluice::kernels::cpu {
namespace {

// Eight floats: one AVX register. Other targets get two or more of theirs from the compiler.
using Vector = float __attribute__((vector_size(32)));
using UnalignedVector = float __attribute__((vector_size(32), aligned(4)));

Vector LoadVector(const float* from) { return *reinterpret_cast<const UnalignedVector*>(from); }
void StoreVector(float* to, Vector value) { *reinterpret_cast<UnalignedVector*>(to) = value; }

// The sums of one 6 x 16 tile over `depth` steps: twelve accumulators, so that the two FMA units of an x86 core never
// wait for one another's result (latency 4-5 x 2 units). With kRows < kTileRows only the tile's first rows.
template <int kRows = kTileRows>
void MultiplyTile(const float* left, const float* right, int64_t depth, float alpha, float beta, float* out,
                  int64_t out_stride) {
  Vector low[kRows] = {};
  Vector high[kRows] = {};
  for (int64_t step = 0; step < depth; ++step) {
    const Vector right_low = LoadVector(right);
    const Vector right_high = LoadVector(right + 8);
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      const Vector factor = left[row] - Vector{};  // broadcast
      low[row] += factor * right_low;
      high[row] += factor * right_high;
    }
    left += kTileRows;
    right += kTileColumns;
  }
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    float* to = out + row * out_stride;
    if (beta == 0.0f) {
      StoreVector(to, alpha * low[row]);
      StoreVector(to + 8, alpha * high[row]);
    } else {
      StoreVector(to, alpha * low[row] + beta * LoadVector(to));
      StoreVector(to + 8, alpha * high[row] + beta * LoadVector(to + 8));
    }
  }
}

// A tile that hangs over the matrix's edge is made aside and its inner part copied.
void MultiplyEdgeTile(const float* left, const float* right, int64_t depth, int64_t rows, int64_t columns, float alpha,
                      float beta, float* out, int64_t out_stride) {
  float tile[kTileRows * kTileColumns];
  if (rows == 1) {
    MultiplyTile<1>(left, right, depth, alpha, 0.0f, tile, kTileColumns);
  } else if (rows == 2) {
    MultiplyTile<2>(left, right, depth, alpha, 0.0f, tile, kTileColumns);
  } else {
    MultiplyTile(left, right, depth, alpha, 0.0f, tile, kTileColumns);
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      float& to = out[row * out_stride + column];
      to = beta == 0.0f ? tile[row * kTileColumns + column] : tile[row * kTileColumns + column] + beta * to;
    }
  }
}

template <typename T>
Vector LoadEight(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return LoadVector(from);
  } else {
    Vector value;
    for (int i = 0; i < 8; ++i) value[i] = static_cast<float>(from[i]);
    return value;
  }
}

// to[i][j] = from[j][i] for a square of eight: pairs, then fours, then halves change places.
template <typename T>
void TransposeSquare(const T* from, int64_t from_stride, float* to, int64_t to_stride) {
  using Index = int32_t __attribute__((vector_size(32)));
  Vector row[8], pair[8], four[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) row[i] = LoadEight(from + i * from_stride);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pair[i] = __builtin_shuffle(row[i], row[i + 1], Index{0, 8, 1, 9, 4, 12, 5, 13});
    pair[i + 1] = __builtin_shuffle(row[i], row[i + 1], Index{2, 10, 3, 11, 6, 14, 7, 15});
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      four[i + 2 * j] = __builtin_shuffle(pair[i + j], pair[i + j + 2], Index{0, 1, 8, 9, 4, 5, 12, 13});
      four[i + 2 * j + 1] = __builtin_shuffle(pair[i + j], pair[i + j + 2], Index{2, 3, 10, 11, 6, 7, 14, 15});
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    StoreVector(to + i * to_stride, __builtin_shuffle(four[i], four[i + 4], Index{0, 1, 2, 3, 8, 9, 10, 11}));
    StoreVector(to + (i + 4) * to_stride, __builtin_shuffle(four[i], four[i + 4], Index{4, 5, 6, 7, 12, 13, 14, 15}));
  }
}

// One panel of `width` lines (rows of the left operand, columns of the right) along the depth. `along` is the distance
// between steps of the depth in memory, `across` between lines.
template <int64_t kWidth, typename T>
void PackPanel(const T* from, int64_t across, int64_t along, int64_t lines, int64_t depth, float* packed) {
  if (lines < kWidth) {
    std::memset(packed, 0, static_cast<size_t>(kWidth * depth) * sizeof(float));
    for (int64_t step = 0; step < depth; ++step) {
      for (int64_t line = 0; line < lines; ++line) {
        packed[step * kWidth + line] = static_cast<float>(from[line * across + step * along]);
      }
    }
  } else if (across == 1) {
    for (int64_t step = 0; step < depth; ++step) {
#pragma GCC unroll 16
      for (int64_t line = 0; line < kWidth; ++line) {
        packed[step * kWidth + line] = static_cast<float>(from[step * along + line]);
      }
    }
  } else {
    // A transposition in squares of eight steps: each line is read eight elements at a time.
    int64_t step = 0;
    for (; step + 8 <= depth; step += 8) {
      int64_t line = 0;
      for (; line + 8 <= kWidth; line += 8)
        TransposeSquare(from + line * across + step, across, packed + step * kWidth + line, kWidth);
      for (; line < kWidth; ++line) {
        for (int64_t i = 0; i < 8; ++i)
          packed[(step + i) * kWidth + line] = static_cast<float>(from[line * across + step + i]);
      }
    }
    for (; step < depth; ++step) {
      for (int64_t line = 0; line < kWidth; ++line) {
        packed[step * kWidth + line] = static_cast<float>(from[line * across + step]);
      }
    }
  }
}

}  // namespace

template <typename T>
void PackLeft(Operand<T> left, int64_t rows, int64_t depth, float* packed) {
  for (int64_t row = 0; row < rows; row += kTileRows) {
    PackPanel<kTileRows>(left.at(row, 0), left.transposed ? 1 : left.stride, left.transposed ? left.stride : 1,
                         std::min(kTileRows, rows - row), depth, packed + row * depth);
  }
}

template <typename T>
void PackRight(Operand<T> right, int64_t depth, int64_t columns, float* packed) {
  for (int64_t column = 0; column < columns; column += kTileColumns) {
    PackPanel<kTileColumns>(right.at(0, column), right.transposed ? right.stride : 1,
                            right.transposed ? 1 : right.stride, std::min(kTileColumns, columns - column), depth,
                            packed + column * depth);
  }
}

template void PackLeft<float>(Operand<float>, int64_t, int64_t, float*);
template void PackLeft<BFloat16>(Operand<BFloat16>, int64_t, int64_t, float*);
template void PackRight<float>(Operand<float>, int64_t, int64_t, float*);
template void PackRight<BFloat16>(Operand<BFloat16>, int64_t, int64_t, float*);

void MultiplyPacked(const float* left, int64_t left_depth, const float* right, int64_t right_depth, int64_t rows,
                    int64_t columns, int64_t depth, float alpha, float beta, float* out, int64_t out_stride) {
  // A panel of the right operand stays in the first-level cache while the left one streams past it.
  for (int64_t column = 0; column < columns; column += kTileColumns) {
    const float* right_panel = right + column * right_depth;
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const float* left_panel = left + row * left_depth;
      float* to = out + row * out_stride + column;
      if (row + kTileRows <= rows && column + kTileColumns <= columns) {
        MultiplyTile(left_panel, right_panel, depth, alpha, beta, to, out_stride);
      } else {
        MultiplyEdgeTile(left_panel, right_panel, depth, std::min(kTileRows, rows - row),
                         std::min(kTileColumns, columns - column), alpha, beta, to, out_stride);
      }
    }
  }
}

}  // namespace sluice::kernels::cpu
