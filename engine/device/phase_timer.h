// How long each phase of a step took on the device, without waiting for it in between.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/stream.h"

namespace sluice::engine {

// On CUDA a phase is the time between two events on the stream; on the CPU, where a call is the work, wall-clock time.
// Not thread-safe.
class PhaseTimer {
 public:
  explicit PhaseTimer(kernels::Stream stream);  // the first phase begins
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  // The phase that began with the last End (or the construction) ends and was called `name`.
  void End(const std::string& name);

  // Seconds by name; phases of one name add up. Waits for the device.
  std::map<std::string, double> Seconds() const;

 private:
  struct Moment;

  kernels::Stream stream_;
  std::vector<std::unique_ptr<Moment>> moments_;
};

}  // namespace sluice::engine
