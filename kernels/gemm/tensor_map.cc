#include "kernels/gemm/tensor_map.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"

namespace sluice::kernels::cuda {
namespace {

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// From the driver, found at run time: a program linked to the driver would not start where there is none.
Encode FindEncode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kCuda12 = 12000;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kCuda12, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    return nullptr;
  }
  return reinterpret_cast<Encode>(function);
}

}  // namespace

bool CanBeTiled(ConstTensorView matrix) {
  return matrix.dtype == DType::kBFloat16 && matrix.shape.rank() == 2 && matrix.dim(0) > 0 && matrix.dim(1) > 0 &&
         reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.row_stride % 8 == 0;
}

absl::StatusOr<CUtensorMap> TiledBy(ConstTensorView matrix, int rows) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) {
    return absl::FailedPreconditionError(
        "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12; install a newer one");
  }
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.dim(1)), static_cast<cuuint64_t>(matrix.dim(0))};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.row_stride) * 2};
  const cuuint32_t tile[] = {64, static_cast<cuuint32_t>(rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix.data), sizes,
                                 strides, tile, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(absl::StrCat("tensor map of [", matrix.dim(0), ", ", matrix.dim(1), "], row stride ",
                                            matrix.row_stride, ": CUDA driver error ", static_cast<int>(result)));
  }
  return map;
}

}  // namespace sluice::kernels::cuda
