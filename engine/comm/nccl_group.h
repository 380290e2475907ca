// Collectives between the GPUs of a job by NCCL, one process for each, beside the computation.
//
// BeginSum, BeginGather and BeginBroadcast issue one on a stream of the group's own: it starts when what the engine's
// stream was given so far is done, and runs beside what that stream is given next. Join makes the engine's stream wait
// for all begun before. They only issue work and may be recorded into a CUDA graph, a Begin and its Join in one
// recording; whether a rank records or not is its own matter, as long as all issue the same collectives in the same
// order.
//
// A GPU cannot tell that a peer is gone: its kernel waits for ever. A thread watches instead. When work that Watch was
// told of is not done within the time-out, or NCCL reports an error, it aborts the communicator, which ends the
// kernels; results are then worthless and status(), which any thread may ask, says why. The rest is for one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

struct NcclGroupOptions {
  int rank = 0;
  int world_size = 2;
  std::string id;  // of NewId, from one rank, the same for all
  kernels::Device device;
  absl::Duration timeout = absl::Minutes(10);
};

class NcclGroup {
 public:
  static absl::StatusOr<std::string> NewId();

  // Returns when all ranks have called it. Aborted, with NCCL's words, where they cannot connect.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Create(const NcclGroupOptions& options);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // In place. REQUIRES: a dense view on the group's device, fp32, bf16 or fp64.
  absl::Status BeginSum(kernels::TensorView values);
  // By rank, one after the other in `all`. REQUIRES: dense views on the group's device, `all` of world_size times the
  // bytes of `mine`.
  absl::Status BeginGather(kernels::ConstTensorView mine, kernels::TensorView all);
  // In place, the bytes of the rank `root`. REQUIRES: a dense view on the group's device.
  absl::Status BeginBroadcast(kernels::TensorView values, int root);
  absl::Status Join();

  // From now on the time-out runs for all that the engine's stream has been given. Not while recording.
  absl::Status Watch();

  // Aborted once the group was given up.
  absl::Status status() const;

 private:
  class Impl;
  explicit NcclGroup(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
