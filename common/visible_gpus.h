// The GPUs that a process may use, as its children are told of them.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// One value of CUDA_VISIBLE_DEVICES for each GPU that this process sees, with which a child sees that one alone.
// `visible`: our own value of it, by number or by UUID, null where it is not set. `count`: GPUs of the driver. As in
// CUDA, an entry that names no GPU ends the list.
std::vector<std::string> VisibleGpuIds(const char* visible, int count);

}  // namespace sluice
