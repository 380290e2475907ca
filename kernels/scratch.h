// Uninitialised float scratch for CPU kernels, aligned to cache lines.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace sluice::kernels {

struct ScratchDelete {
  void operator()(float* data) const { ::operator delete[](data, std::align_val_t{64}); }
};

using Scratch = std::unique_ptr<float[], ScratchDelete>;

inline Scratch MakeScratch(int64_t floats) {
  void* data = ::operator new[](static_cast<size_t>(floats) * sizeof(float), std::align_val_t{64});
  return Scratch(static_cast<float*>(data));
}

}  // namespace sluice::kernels
