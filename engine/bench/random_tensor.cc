#include "engine/bench/random_tensor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>

#include "common/status_macros.h"
#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"

namespace sluice::engine {

absl::StatusOr<RandomTensor> RandomTensor::Create(kernels::DType dtype, kernels::Shape shape, kernels::Stream stream,
                                                  uint64_t seed, double scale, int64_t limit) {
  RandomTensor tensor;
  ASSIGN_OR_RETURN(tensor.memory_, DeviceMemory::Allocate(shape.elements() * kernels::SizeOf(dtype), stream.device));
  tensor.view_ = tensor.memory_.View(0, dtype, shape);
  RETURN_IF_ERROR(kernels::CallAten("random", stream, [&] {
    at::Generator generator = stream.device.is_cuda() ? at::cuda::detail::createCUDAGenerator(stream.device.index)
                                                      : at::detail::createCPUGenerator();
    generator.set_current_seed(seed);
    at::Tensor values = kernels::AsTensor(tensor.view_);
    if (kernels::IsFloating(dtype)) values.normal_(0.0, scale, generator);
    if (dtype == kernels::DType::kInt32 && limit > 0) values.random_(0, limit, generator);
  }));
  return tensor;
}

}  // namespace sluice::engine
