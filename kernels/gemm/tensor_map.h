// How the tensor memory accelerator is told about a matrix, and in what tiles it copies it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels::cuda {

// Tiles of `rows` rows by 64 elements (128 bytes), in shared memory swizzled over 8 rows. Elements outside of the
// matrix read as zeros. REQUIRES: CanBeTiled; rows <= 256.
absl::StatusOr<CUtensorMap> TiledBy(ConstTensorView matrix, int rows);

// A bf16 matrix [rows, columns] whose rows begin at multiples of 16 bytes.
bool CanBeTiled(ConstTensorView matrix);

}  // namespace sluice::kernels::cuda
