#include "worker/gpu_probe.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "common/visible_gpus.h"

namespace sluice::worker {
namespace {

// The part of NVML's stable C interface that is used here.
constexpr int kNvmlSuccess = 0;
using InitFunction = int (*)();
using CountFunction = int (*)(unsigned int*);
using HandleFunction = int (*)(unsigned int, void**);
using NameFunction = int (*)(void*, char*, unsigned int);

template <typename Function>
Function Load(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// Names of the host's GPUs in the driver's order.
std::vector<std::string> DriverGpus() {
  std::vector<std::string> names;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return names;
  const auto init = Load<InitFunction>(library, "nvmlInit_v2");
  const auto shutdown = Load<InitFunction>(library, "nvmlShutdown");
  const auto count_gpus = Load<CountFunction>(library, "nvmlDeviceGetCount_v2");
  const auto get_handle = Load<HandleFunction>(library, "nvmlDeviceGetHandleByIndex_v2");
  const auto get_name = Load<NameFunction>(library, "nvmlDeviceGetName");
  const bool complete = init && shutdown && count_gpus && get_handle && get_name;
  if (complete && init() == kNvmlSuccess) {
    unsigned int count = 0;
    if (count_gpus(&count) == kNvmlSuccess) {
      for (unsigned int i = 0; i < count; ++i) {
        void* handle = nullptr;
        char name[96] = "GPU";
        if (get_handle(i, &handle) == kNvmlSuccess) get_name(handle, name, sizeof(name));
        names.emplace_back(name);
      }
    }
    shutdown();
  }
  dlclose(library);
  return names;
}

}  // namespace

std::vector<Gpu> ProbeGpus() {
  const std::vector<std::string> names = DriverGpus();
  std::vector<Gpu> gpus;
  for (const std::string& id : VisibleGpuIds(std::getenv("CUDA_VISIBLE_DEVICES"), static_cast<int>(names.size()))) {
    size_t number = 0;
    gpus.push_back({id, absl::SimpleAtoi(id, &number) ? names[number] : "GPU"});
  }
  return gpus;
}

}  // namespace sluice::worker
