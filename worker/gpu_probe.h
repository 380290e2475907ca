// Which GPUs this process may use, asked of the driver without starting CUDA.
#pragma once

#include <string>
#include <vector>

namespace sluice::worker {

struct Gpu {
  std::string id;    // the value of CUDA_VISIBLE_DEVICES with which a child sees this one alone
  std::string name;  // "NVIDIA H200"; "GPU" where it was made visible by its UUID
};

// Those that CUDA_VISIBLE_DEVICES lets us see, in its order, or all in the driver's; empty where there is no driver or
// no GPU. Loads the driver's management library (libnvidia-ml.so.1) for the length of the call.
std::vector<Gpu> ProbeGpus();

}  // namespace sluice::worker
