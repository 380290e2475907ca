// One cuDNN operation graph with its plan: attention forward or backward over ragged batches of one shape.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"

namespace sluice::kernels::cuda {

// Device pointers of one call; those of the other direction are null.
struct AttentionPointers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* out = nullptr;  // the forward writes it
  const void* logsumexp = nullptr;
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  const int32_t* bounds = nullptr;  // [4, B + 1]
};

class AttentionGraph {
 public:
  virtual ~AttentionGraph() = default;
  virtual int64_t workspace_bytes() const = 0;
  virtual absl::Status Execute(cudnnHandle_t handle, const AttentionPointers& pointers, void* workspace) const = 0;
};

// Internal, with cuDNN's words and the shape, where cuDNN has no plan.
absl::StatusOr<std::unique_ptr<AttentionGraph>> BuildAttentionGraph(const AttentionShape& shape, bool backward,
                                                                    cudnnHandle_t handle);

}  // namespace sluice::kernels::cuda
