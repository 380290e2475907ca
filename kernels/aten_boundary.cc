#include "kernels/aten_boundary.h"

#include <ATen/Context.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::kernels {
namespace {

std::string Message(std::string_view kernel, std::string_view what) {
  return absl::StrCat(absl::string_view(kernel.data(), kernel.size()), ": ",
                      absl::string_view(what.data(), what.size()));
}

}  // namespace

absl::Status CallAten(std::string_view kernel, Stream stream, absl::FunctionRef<void()> body) {
  try {
    const c10::InferenceMode no_autograd;
    std::optional<c10::cuda::CUDAGuard> device_guard;
    std::optional<c10::cuda::CUDAStreamGuard> stream_guard;
    if (stream.device.is_cuda()) {
      // Views are made without LibTorch's factories, which would otherwise do this.
      at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
      device_guard.emplace(stream.device.index);
      if (stream.handle != nullptr) {
        stream_guard.emplace(
            c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream.handle), stream.device.index));
      }
    }
    body();
    return absl::OkStatus();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(Message(kernel, error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::InternalError(Message(kernel, error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(Message(kernel, "no memory for scratch"));
  } catch (const std::exception& error) {
    return absl::InternalError(Message(kernel, error.what()));
  }
}

}  // namespace sluice::kernels
