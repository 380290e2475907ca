// Single-precision matrix product on packed operands, the inner engine of the CPU matmul and attention.
//
// The left operand is packed in panels of kTileRows rows, the right one in panels of kTileColumns columns, both along
// the summed dimension, zero-padded to whole panels. Packing converts bf16 and takes either orientation, so one inner
// loop serves all transposes and types. Scheme: Goto & van de Geijn 2008; tile of 6 x 16 as twelve 8-float sums.
//
// Why an own product: its result depends on the values and the number of threads only. A vendor's may also depend on
// where the arrays happen to lie, and a resumed run must repeat its losses to the last bit. It loses no speed by it: 94
// % of the FMA peak on the AVX2 machine it was written on, where the vendor's reached 87 %. None of these functions
// makes threads: callers split the work.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.h"

namespace sluice::kernels::cpu {

inline constexpr int64_t kTileRows = 6;
inline constexpr int64_t kTileColumns = 16;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// A matrix in memory: element (row, column) is data[row * stride + column], or data[column * stride + row] if
// transposed, so that the callers speak of the operand they mean.
template <typename T>
struct Operand {
  const T* data;
  int64_t stride;
  bool transposed;

  const T* at(int64_t row, int64_t column) const {
    return transposed ? data + column * stride + row : data + row * stride + column;
  }
};

// Packs rows x depth of the left operand from its corner. `packed` holds RoundUp(rows, kTileRows) * depth floats; panel
// i (rows 6i..6i+5) starts at i * kTileRows * depth.
template <typename T>
void PackLeft(Operand<T> left, int64_t rows, int64_t depth, float* packed);

// Packs depth x columns of the right operand from its corner. `packed` holds depth * RoundUp(columns, kTileColumns)
// floats; panel j (columns 16j..16j+15) starts at j * kTileColumns * depth.
template <typename T>
void PackRight(Operand<T> right, int64_t depth, int64_t columns, float* packed);

// out[rows, columns] = alpha * left * right + beta * out, summing `depth` steps. `left_depth` and `right_depth` are the
// depths the operands were packed with; the pointers may start at an inner step of the depth (left + step * kTileRows,
// right + step * kTileColumns). beta = 0 does not read `out`.
void MultiplyPacked(const float* left, int64_t left_depth, const float* right, int64_t right_depth, int64_t rows,
                    int64_t columns, int64_t depth, float alpha, float beta, float* out, int64_t out_stride);

}  // namespace sluice::kernels::cpu
