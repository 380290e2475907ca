#include "engine/roles/gpu_check.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "engine/roles/kernel_image.h"

namespace sluice::engine {
namespace {

std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

void ReadFirstGpu(GpuFacts* facts) {
  cudaDeviceProp properties = {};
  cudaError_t error = cudaGetDeviceProperties(&properties, 0);
  if (error == cudaSuccess) {
    facts->name = properties.name;
    facts->major = properties.major;
    facts->minor = properties.minor;
    error = FindKernelImage();
  }
  facts->has_kernels = error == cudaSuccess;
  const bool no_image = error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction;
  if (error != cudaSuccess && !no_image) facts->problem = cudaGetErrorString(error);
}

}  // namespace

GpuFacts ReadGpuFacts() {
  GpuFacts facts = {.built_version = CUDART_VERSION, .built_for = SLUICE_BUILT_FOR};
  if (cudaDriverGetVersion(&facts.driver_version) != cudaSuccess) facts.driver_version = 0;
  const cudaError_t error = cudaGetDeviceCount(&facts.gpus);
  if (error != cudaSuccess) {
    facts.gpus = 0;
    if (error != cudaErrorNoDevice) facts.problem = cudaGetErrorString(error);
  }
  (void)cudaGetLastError();
  if (facts.gpus > 0) ReadFirstGpu(&facts);
  return facts;
}

absl::Status CheckGpu(const GpuFacts& facts) {
  if (facts.driver_version == 0) {
    return absl::InvalidArgumentError(
        "there is no NVIDIA driver on this machine; install one that nvidia-smi runs with");
  }
  // A driver serves every CUDA of its own major version and below.
  if (facts.driver_version / 1000 < facts.built_version / 1000) {
    return absl::InvalidArgumentError(absl::StrCat("the NVIDIA driver serves CUDA ", VersionText(facts.driver_version),
                                                   " and this program needs ", facts.built_version / 1000,
                                                   ".0 or later; update the driver (nvidia-smi shows both versions)"));
  }
  if (facts.gpus == 0) {
    const bool answered = facts.problem.empty();
    return absl::Status(
        answered ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kFailedPrecondition,
        absl::StrCat("the CUDA driver finds no GPU", answered ? "" : absl::StrCat(" (", facts.problem, ")"),
                     "; check with nvidia-smi, and that CUDA_VISIBLE_DEVICES does not hide it"));
  }
  if (!facts.problem.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the GPU", facts.name.empty() ? "" : absl::StrCat(" (", facts.name, ")"),
                     " cannot be used: ", facts.problem, "; look with nvidia-smi for what holds it"));
  }
  if (!facts.has_kernels) {
    return absl::InvalidArgumentError(absl::StrCat("the ", facts.name, " has compute capability ", facts.major, ".",
                                                   facts.minor, " and this program holds kernels for ", facts.built_for,
                                                   " only; build it with -DSLUICE_CUDA_ARCHITECTURES=", facts.major,
                                                   facts.minor));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
