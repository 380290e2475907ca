// Whether the GPU of this process can be computed on, and if not, what to do about it.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice::engine {

// What the driver says. CUDA's versions are 1000 * major + 10 * minor.
struct GpuFacts {
  int driver_version = 0;    // the newest CUDA that the driver serves; 0: there is no driver
  int built_version = 0;     // the CUDA that this program is built with
  int gpus = 0;              // that this process sees
  std::string name;          // of the first one
  int major = 0, minor = 0;  // its compute capability
  bool has_kernels = false;  // this program holds code for it
  std::string built_for;     // the architectures that the program was compiled for: "90a"
  std::string problem;       // what a call that failed says, in CUDA's words; empty: none did
};

GpuFacts ReadGpuFacts();

// An error, with what is wrong and what to do, unless the first GPU can be used. InvalidArgument where trying again
// changes nothing: no driver, one that is older than the program's CUDA, no GPU, one without kernels in this program.
// FailedPrecondition: a driver or GPU that does not answer. Pure.
absl::Status CheckGpu(const GpuFacts& facts);

}  // namespace sluice::engine
