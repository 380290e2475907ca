// A Communicator over LibTorch's Gloo group for host memory and NCCL for CUDA memory.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"

namespace c10d {
class Backend;
}

namespace sluice::engine {

class ProcessGroupCommunicator : public Communicator {
 public:
  // REQUIRES: options.world_size > 1. InvalidArgument: options.rendezvous is of no known form.
  static absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommunicatorOptions& options);
  ~ProcessGroupCommunicator() override;

 private:
  struct Groups;

  ProcessGroupCommunicator(const CommunicatorOptions& options, std::unique_ptr<Groups> groups);

  absl::Status ConnectDevices();

  absl::Status DoBeginAllReduceSum(kernels::TensorView values) override;
  absl::Status DoBeginAllGather(kernels::ConstTensorView mine, kernels::TensorView all) override;
  absl::Status DoBeginBroadcast(kernels::TensorView values, int root) override;
  absl::Status DoJoin() override;
  absl::Status DoWatchDevice() override;
  absl::Status DoDeviceStatus() const override;
  absl::Status DoAllReduce(absl::Span<double> values, bool max) override;
  absl::StatusOr<std::vector<std::string>> DoAllGather(const std::string& bytes) override;

  const CommunicatorOptions options_;
  const std::unique_ptr<Groups> groups_;
};

}  // namespace sluice::engine
