// Where a tensor's bytes live.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::kernels {

struct Device {
  enum class Kind : uint8_t { kCpu, kCuda };

  Kind kind = Kind::kCpu;
  int8_t index = 0;  // CUDA ordinal among the visible devices; 0 on the CPU

  static constexpr Device Cpu() { return {}; }
  static constexpr Device Cuda(int index) { return {Kind::kCuda, static_cast<int8_t>(index)}; }

  constexpr bool is_cpu() const { return kind == Kind::kCpu; }
  constexpr bool is_cuda() const { return kind == Kind::kCuda; }
  friend constexpr bool operator==(Device, Device) = default;
};

inline std::string Name(Device device) { return device.is_cpu() ? "cpu" : "cuda:" + std::to_string(device.index); }

}  // namespace sluice::kernels
