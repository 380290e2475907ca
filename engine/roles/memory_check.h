// Whether a job fits on its GPU, before anything is allocated there.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/model_config.h"
#include "kernels/device.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

// Bytes on the device.
struct MemoryNeeds {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;
  int64_t reference = 0;  // the reference model, its activations included
  int64_t workspace = 0;  // attention's part of it is an estimate (common/config/memory_plan.h)

  int64_t total() const { return weights + gradients + optimizer + activations + reference + workspace; }
};

// The rows that are trained on, where they are known.
struct RowLengths {
  int64_t longest = 0;  // tokens; 0: data.max_length
  double mean = 0;      // tokens; 0: the longest
};

// What Parameters, AdamWOptimizer (with `optimizer`) and CausalLm will allocate on a CUDA device, for the model and
// where the job has one for the reference model, which is of `config` where `reference` is null.
MemoryNeeds NeedsOnCuda(const v1::JobSpec& spec, const ModelConfig& config, bool optimizer, const RowLengths& rows,
                        const ModelConfig* reference = nullptr);

// ResourceExhausted where `needs` are more than `free_bytes`, naming the parts and the settings of `spec` that would
// make them smaller. Pure.
absl::Status CheckMemory(const MemoryNeeds& needs, int64_t free_bytes, const v1::JobSpec& spec);

// CheckMemory with the free memory of this GPU. Internal: CUDA does not tell.
absl::Status CheckFreeMemory(const MemoryNeeds& needs, const v1::JobSpec& spec, kernels::Device device);

}  // namespace sluice::engine
