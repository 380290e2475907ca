#include "engine/device/phase_timer.h"

#include <cuda_runtime_api.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sluice::engine {

struct PhaseTimer::Moment {
  std::string name;  // of the phase that ended
  absl::Time time;
  cudaEvent_t event = nullptr;

  ~Moment() {
    if (event != nullptr) cudaEventDestroy(event);
  }
};

PhaseTimer::PhaseTimer(kernels::Stream stream) : stream_(stream) { End(""); }

PhaseTimer::~PhaseTimer() = default;

void PhaseTimer::End(const std::string& name) {
  auto moment = std::make_unique<Moment>();
  moment->name = name;
  moment->time = absl::Now();
  if (stream_.device.is_cuda() && cudaEventCreate(&moment->event) == cudaSuccess) {
    cudaEventRecord(moment->event, static_cast<cudaStream_t>(stream_.handle));
  }
  moments_.push_back(std::move(moment));
}

std::map<std::string, double> PhaseTimer::Seconds() const {
  std::map<std::string, double> seconds;
  for (size_t i = 1; i < moments_.size(); ++i) {
    const Moment& begin = *moments_[i - 1];
    const Moment& end = *moments_[i];
    if (begin.event != nullptr && end.event != nullptr) {
      float milliseconds = 0;
      cudaEventSynchronize(end.event);
      cudaEventElapsedTime(&milliseconds, begin.event, end.event);
      seconds[end.name] += milliseconds / 1e3;
    } else {
      seconds[end.name] += absl::ToDoubleSeconds(end.time - begin.time);
    }
  }
  return seconds;
}

}  // namespace sluice::engine
