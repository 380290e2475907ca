// Small results on their way from the device to the host, without stopping the device's work.
//
// Issue copies them in stream order into page-locked memory; Wait returns when that copy is done, not what was issued
// after it. Not thread-safe; one copy under way at a time.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

class Readback {
 public:
  // Room for `bytes` in all. ResourceExhausted: no page-locked memory.
  static absl::StatusOr<std::unique_ptr<Readback>> Create(size_t bytes, kernels::Stream stream);
  ~Readback();
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;

  // The values one after the other, each at the next multiple of 8 bytes. REQUIRES: dense; they fit.
  absl::Status Issue(std::initializer_list<kernels::ConstTensorView> values);

  // Internal, with CUDA's words, if the device's work failed.
  absl::Status Wait();

  // What was at `byte_offset`. REQUIRES: Wait has returned OK since the last Issue.
  template <typename T>
  T At(size_t byte_offset, size_t index = 0) const {
    return reinterpret_cast<const T*>(block_ + byte_offset)[index];
  }

 private:
  explicit Readback(kernels::Stream stream) : stream_(stream) {}

  const kernels::Stream stream_;
  std::byte* block_ = nullptr;  // page-locked on CUDA
  void* copied_ = nullptr;      // a cudaEvent_t
};

}  // namespace sluice::engine
