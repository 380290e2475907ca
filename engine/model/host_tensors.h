// Named tensors in host memory, made from slices of a flat array on any device: what a checkpoint writer takes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/tensor_data.h"
#include "engine/device/device_memory.h"
#include "engine/model/parameter_layout.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

// `tensors` views either `storage` or, where the flat array was on the host in the type asked for, that array itself:
// then it must not change or go away while this is in use.
struct HostTensors {
  DeviceMemory storage;
  std::vector<TensorData> tensors;
};

// The parameters of `layout` out of `flat` [layout.size()], in the type `dtype` (fp32 or bf16), under the name
// `prefix` + Hugging Face name, in the order of the layout.
absl::StatusOr<HostTensors> ExportFlat(const ParameterLayout& layout, kernels::ConstTensorView flat,
                                       kernels::DType dtype, const std::string& prefix = "");

// The reverse of ExportFlat: each parameter of `layout` is copied into `flat` from the tensor named `prefix` + its
// name. Tensors of other names are left alone. F32, BF16, F16 and F64 are converted. InvalidArgument, naming the
// tensor, if one is missing, has another shape or another kind of type.
absl::Status ImportFlat(const ParameterLayout& layout, std::span<const TensorData> tensors, kernels::TensorView flat,
                        const std::string& prefix = "");

}  // namespace sluice::engine
