// Matrix product: C = alpha * op(A) * op(B) + beta * C, where op transposes or not.
//
// The three products of a linear layer y = x W^T with W [out, in], for T tokens:
//   y  = x  W^T + b  .a = x,  .b = W, .transpose_b = true, .bias = b    [T, out]
//   dx = dy W        .a = dy, .b = W                                    [T, in]
//   dW += dy^T x     .a = dy, .transpose_a = true, .b = x, .beta = 1    [out, in], fp32
#pragma once

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

inline constexpr int64_t kMatMulWorkspace = int64_t{32} << 20;

struct MatMul {
  ConstTensorView a;  // [M, K], or [K, M] with transpose_a; bf16, fp32 or fp8; strided
  bool transpose_a = false;
  ConstTensorView b;  // [K, N], or [N, K] with transpose_b; as a; strided
  bool transpose_b = false;
  TensorView c;  // [M, N] fp32, or bf16 if a and b are not fp32; strided. Must not alias a or b.
  float alpha = 1.0f;
  float beta = 0.0f;     // 0: c is overwritten and never read, so it may hold anything
  ConstTensorView bias;  // [N] as c, added to every row before c is rounded; or empty. REQUIRES: beta = 0
  // With a and b in fp8 alone, and there always: [1] fp32 each, what their elements are to be multiplied with. Such a
  // product is A B^T, without bias; K and N are multiples of 16, rows begin at multiples of 16 bytes.
  ConstTensorView scale_a, scale_b;
};

// Sums are in fp32; c is rounded once, at the end. Deterministic, on the CPU for a fixed number of threads, on CUDA for
// one choice of algorithm (gemm_tuning.h). On the CPU with alpha = 1 and beta = 0 a row of c is a function of its row
// of a and of b alone: the same bits however many other rows are computed with it. On CUDA it takes kMatMulWorkspace
// bytes of the stream's workspace. Returns InvalidArgument, naming the argument, for mismatched shapes, types or
// devices, and ResourceExhausted when a GPU has no memory for scratch.
absl::Status Run(const MatMul& args, Stream stream);

}  // namespace sluice::kernels
