#include "engine/bench/collective_bench.h"

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/build_info.h"
#include "common/status_macros.h"
#include "engine/bench/gpu_timer.h"
#include "engine/bench/random_tensor.h"

namespace sluice::engine {

absl::Status RunCollectiveBench(kernels::Stream stream, Communicator& communicator) {
  constexpr int64_t kMiB = 1 << 20;
  const double factor = 2.0 * (communicator.world_size() - 1) / communicator.world_size();
  for (const int64_t bytes : {kMiB / 16, kMiB, 16 * kMiB, 64 * kMiB, 128 * kMiB, 256 * kMiB, 2048 * kMiB}) {
    ASSIGN_OR_RETURN(const RandomTensor values,
                     RandomTensor::Create(kernels::DType::kBFloat16, {bytes / 2}, stream, 1));
    RETURN_IF_ERROR(communicator.Barrier());
    ASSIGN_OR_RETURN(const double seconds,
                     MedianSeconds(stream, 5, 20, [&] { return communicator.AllReduceSum(values); }));
    RETURN_IF_ERROR(communicator.device_status());
    if (communicator.rank() != 0) continue;
    const nlohmann::ordered_json line = {
        {"run", "collectives"},
        {"collective", "all_reduce"},
        {"gpus", communicator.world_size()},
        {"mib", static_cast<double>(bytes) / kMiB},
        {"us", std::round(seconds * 1e7) / 10},
        {"bus_gb_per_s", std::round(static_cast<double>(bytes) * factor / seconds / 1e8) / 10},
        {"version", BuildVersion()}};
    std::cout << line.dump() << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
