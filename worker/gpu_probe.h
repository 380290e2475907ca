// Which GPUs this host has, asked of the driver without starting CUDA.
#pragma once

#include <string>
#include <vector>

namespace sluice::worker {

// Names of the GPUs in the driver's order; empty where there is no driver or no GPU. Loads the driver's management
// library (libnvidia-ml.so.1) for the length of the call.
std::vector<std::string> ProbeGpus();

}  // namespace sluice::worker
