// How the scored rows are cut into pieces on CUDA, and where a piece lies in the workspace.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/dtype.h"

namespace sluice::kernels::cuda {

// A piece is `piece_rows` rows, a multiple of kRowBlock where the bound on the logits allows it. The last one is padded
// with zero rows to a multiple too: the products then have few shapes, and each shape costs a search for its algorithm.
struct CrossEntropyPieces {
  static constexpr int64_t kRowBlock = 128;

  int64_t piece_rows;     // rows of a whole piece, at most what `scored` rows need
  int64_t logits_stride;  // elements from one row of logits to the next: V rounded up to 16 bytes of bf16
  int64_t rows_offset;    // of the gathered rows of hidden, in bytes from the logits
  int64_t dhidden_offset;
  int64_t bytes;

  CrossEntropyPieces(int64_t scored, int64_t hidden_size, int64_t vocab_size, DType dtype, int64_t logits_bytes) {
    logits_stride = RoundUp(vocab_size, 8);
    const int64_t fit = std::max<int64_t>(logits_bytes / (logits_stride * SizeOf(dtype)), 1);
    piece_rows = std::min(fit >= kRowBlock ? fit / kRowBlock * kRowBlock : fit, RoundUp(scored, kRowBlock));
    const int64_t hidden_bytes = RoundUp(piece_rows * hidden_size * SizeOf(dtype), 256);
    rows_offset = RoundUp(piece_rows * logits_stride * SizeOf(dtype), 256);
    dhidden_offset = rows_offset + hidden_bytes;
    bytes = dhidden_offset + hidden_bytes;
  }

  // Rows to compute for a piece of `rows` scored ones.
  int64_t PaddedRows(int64_t rows) const { return std::min(RoundUp(rows, kRowBlock), piece_rows); }

 private:
  static constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }
};

}  // namespace sluice::kernels::cuda
