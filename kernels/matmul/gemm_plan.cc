#include "kernels/matmul/gemm_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::kernels::cuda {
namespace {

cudaDataType_t TypeOf(DType dtype) {
  if (dtype == DType::kFloat8) return CUDA_R_8F_E4M3;
  return dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

int32_t AlignmentOf(const void* data, int64_t stride_bytes) {
  int32_t alignment = 256;
  while (alignment > 1 &&
         (reinterpret_cast<uintptr_t>(data) % static_cast<uint64_t>(alignment) != 0 || stride_bytes % alignment != 0)) {
    alignment /= 2;
  }
  return alignment;
}

int32_t AlignmentOf(ConstTensorView view) { return AlignmentOf(view.data, view.row_stride * SizeOf(view.dtype)); }

absl::Status Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("matmul: ", call, ": ", cublasLtGetStatusString(status)));
}

}  // namespace

GemmKey KeyOf(const MatMul& args) {
  return {.m = args.c.dim(1),
          .n = args.c.dim(0),
          .k = args.a.dim(args.transpose_a ? 0 : 1),
          .lda = std::max<int64_t>(args.b.row_stride, 1),
          .ldb = std::max<int64_t>(args.a.row_stride, 1),
          .ldc = std::max<int64_t>(args.c.row_stride, 1),
          .transpose_a = args.transpose_b,
          .transpose_b = args.transpose_a,
          .in = args.a.dtype,
          .out = args.c.dtype,
          .accumulates = args.beta != 0.0f,
          .bias = !args.bias.empty(),
          .align_a = AlignmentOf(args.b),
          .align_b = AlignmentOf(args.a),
          .align_c = AlignmentOf(args.c)};
}

std::string ToString(const GemmKey& key) {
  const auto type = [](DType dtype) {
    const std::string_view name = Name(dtype);
    return absl::string_view(name.data(), name.size());
  };
  return absl::StrCat(key.m, " ", key.n, " ", key.k, " ", key.lda, " ", key.ldb, " ", key.ldc, " ",
                      key.transpose_a ? "T" : "N", key.transpose_b ? "T" : "N", " ", type(key.in), " ", type(key.out),
                      " ", key.accumulates ? "add" : "set", " ", key.bias ? "bias" : "plain", " ", key.align_a, " ",
                      key.align_b, " ", key.align_c);
}

absl::StatusOr<GemmProblem> GemmProblem::Create(const GemmKey& key) {
  GemmProblem problem;
  cublasLtMatmulDesc_t operation = nullptr;
  // Without TF32: an fp32 product keeps all bits of its operands.
  RETURN_IF_ERROR(Check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescCreate"));
  problem.operation_.reset(operation);
  const cublasOperation_t transpose_a = key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t transpose_b = key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasLtEpilogue_t epilogue = key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return Check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)), "DescSetAttribute");
  };
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));

  const auto layout = [](Layout& to, DType dtype, int64_t rows, int64_t columns, int64_t stride) {
    cublasLtMatrixLayout_t made = nullptr;
    RETURN_IF_ERROR(Check(cublasLtMatrixLayoutCreate(&made, TypeOf(dtype), static_cast<uint64_t>(rows),
                                                     static_cast<uint64_t>(columns), stride),
                          "MatrixLayoutCreate"));
    to.reset(made);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(
      layout(problem.a_, key.in, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k, key.lda));
  RETURN_IF_ERROR(
      layout(problem.b_, key.in, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n, key.ldb));
  RETURN_IF_ERROR(layout(problem.c_, key.out, key.m, key.n, key.ldc));
  return problem;
}

cublasStatus_t GemmProblem::Launch(cublasLtHandle_t handle, const MatMul& args, void* c,
                                   const cublasLtMatmulAlgo_t& algorithm, void* workspace, int64_t workspace_bytes,
                                   cudaStream_t stream) const {
  // What a product points to besides its matrices. Swapped as they are.
  const std::pair<cublasLtMatmulDescAttributes_t, const void*> pointers[] = {
      {CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias.data},
      {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.scale_b.data},
      {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.scale_a.data}};
  for (const auto& [attribute, pointer] : pointers) {
    if (pointer == nullptr) continue;
    const cublasStatus_t status =
        cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &pointer, sizeof(pointer));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return cublasLtMatmul(handle, operation_.get(), &args.alpha, args.b.data, a_.get(), args.a.data, b_.get(), &args.beta,
                        c, c_.get(), c, c_.get(), &algorithm, workspace, static_cast<size_t>(workspace_bytes), stream);
}

}  // namespace sluice::kernels::cuda
