// A matrix product as cuBLASLt is told about it, and the algorithm chosen for it. cuBLASLt thinks in columns: our
// row-major C = op(A) op(B) is its C^T = op(B)^T op(A)^T, so operands and sizes appear swapped here.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/matmul/matmul.h"

namespace sluice::kernels::cuda {

// What makes two products the same to cuBLASLt. Alignments in bytes, at most 256.
struct GemmKey {
  int64_t m, n, k;                // cuBLASLt's: m = columns of C, n = rows of C
  int64_t lda, ldb, ldc;          // row strides of b, a, c in elements
  bool transpose_a, transpose_b;  // of cuBLASLt's a (our b) and b (our a)
  DType in, out;
  bool accumulates;  // beta != 0
  bool bias;
  int32_t align_a, align_b, align_c;

  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

GemmKey KeyOf(const MatMul& args);

// One line of the cache file: all fields in order, space-separated.
std::string ToString(const GemmKey& key);

// Descriptors of a product. Move-only.
class GemmProblem {
 public:
  static absl::StatusOr<GemmProblem> Create(const GemmKey& key);

  GemmProblem(GemmProblem&&) = default;
  GemmProblem& operator=(GemmProblem&&) = default;

  // cuBLASLt's status of the launch.
  cublasStatus_t Launch(cublasLtHandle_t handle, const MatMul& args, void* c, const cublasLtMatmulAlgo_t& algorithm,
                        void* workspace, int64_t workspace_bytes, cudaStream_t stream) const;

  cublasLtMatmulDesc_t operation() const { return operation_.get(); }
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t c() const { return c_.get(); }

 private:
  struct DestroyOperation {
    void operator()(cublasLtMatmulDesc_t descriptor) const { cublasLtMatmulDescDestroy(descriptor); }
  };
  struct DestroyLayout {
    void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
  };
  using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyOperation>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;

  GemmProblem() = default;

  Operation operation_;
  Layout a_, b_, c_;
};

}  // namespace sluice::kernels::cuda
