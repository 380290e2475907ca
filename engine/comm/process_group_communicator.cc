#include "engine/comm/process_group_communicator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "engine/comm/nccl_group.h"
#include "kernels/aten_view.h"

namespace sluice::engine {
namespace {

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return std::chrono::milliseconds(absl::ToInt64Milliseconds(duration));
}

// LibTorch reports a lost peer and a time-out by exceptions; its messages end in a C++ stack trace, which helps nobody
// here.
absl::Status CallC10d(absl::FunctionRef<void()> body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const c10::Error& error) {
    return absl::AbortedError(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::AbortedError(error.what());
  }
}

absl::StatusOr<c10::intrusive_ptr<c10d::Store>> OpenStore(const CommunicatorOptions& options) {
  absl::string_view address = options.rendezvous;
  c10::intrusive_ptr<c10d::Store> store;
  if (absl::ConsumePrefix(&address, "file:")) {
    RETURN_IF_ERROR(
        // A file for each group: it counts those who use it.
        CallC10d([&] {
          const std::string path =
              options.group.empty() ? std::string(address) : absl::StrCat(address, ".", options.group);
          store = c10::make_intrusive<c10d::FileStore>(path, options.world_size);
        }));
  } else if (absl::ConsumePrefix(&address, "tcp:")) {
    const size_t colon = address.rfind(':');
    int port = 0;
    if (colon == address.npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
      return absl::InvalidArgumentError(absl::StrCat("rendezvous address ", options.rendezvous, " has no port"));
    }
    c10d::TCPStoreOptions tcp;
    tcp.port = static_cast<uint16_t>(port);
    tcp.isServer = false;
    tcp.timeout = Milliseconds(options.timeout);
    RETURN_IF_ERROR(
        CallC10d([&] { store = c10::make_intrusive<c10d::TCPStore>(std::string(address.substr(0, colon)), tcp); }));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous address ", options.rendezvous, " is neither file: nor tcp:"));
  }
  store->setTimeout(Milliseconds(options.timeout));
  return store;
}

class TcpRendezvousServer : public RendezvousServer {
 public:
  explicit TcpRendezvousServer(c10::intrusive_ptr<c10d::TCPStore> store) : store_(std::move(store)) {}
  int port() const override { return store_->getPort(); }

 private:
  const c10::intrusive_ptr<c10d::TCPStore> store_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Start() {
  c10d::TCPStoreOptions options;
  options.port = 0;  // any free one
  options.isServer = true;
  options.waitWorkers = false;
  c10::intrusive_ptr<c10d::TCPStore> store;
  const absl::Status status = CallC10d([&] { store = c10::make_intrusive<c10d::TCPStore>("localhost", options); });
  if (!status.ok()) return absl::UnavailableError(absl::StrCat("rendezvous store: ", status.message()));
  return std::make_unique<TcpRendezvousServer>(std::move(store));
}

struct ProcessGroupCommunicator::Groups {
  c10::intrusive_ptr<c10d::Backend> host;
  std::unique_ptr<NcclGroup> devices;  // null where the device is the CPU
};

ProcessGroupCommunicator::ProcessGroupCommunicator(const CommunicatorOptions& options, std::unique_ptr<Groups> groups)
    : Communicator(options.rank, options.world_size), options_(options), groups_(std::move(groups)) {}

ProcessGroupCommunicator::~ProcessGroupCommunicator() = default;

absl::StatusOr<std::unique_ptr<Communicator>> ProcessGroupCommunicator::Connect(const CommunicatorOptions& options) {
  ASSIGN_OR_RETURN(const c10::intrusive_ptr<c10d::Store> store, OpenStore(options));
  auto groups = std::make_unique<Groups>();
  const absl::Status status = CallC10d([&] {
    auto gloo = c10d::ProcessGroupGloo::Options::create(Milliseconds(options.timeout));
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.host, /*lazyInit=*/false));
    groups->host = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo" + options.group, store), options.rank, options.world_size, gloo);
  });
  if (!status.ok()) {
    return absl::AbortedError(absl::StrCat("rank ", options.rank, " of ", options.world_size,
                                           " could not join its peers at ", options.rendezvous, " from ", options.host,
                                           ": ", status.message()));
  }
  std::unique_ptr<ProcessGroupCommunicator> communicator(new ProcessGroupCommunicator(options, std::move(groups)));
  if (options.device.is_cuda()) RETURN_IF_ERROR(communicator->ConnectDevices());
  return communicator;
}

// The ranks that can talk over host memory make a group of their GPUs.
absl::Status ProcessGroupCommunicator::ConnectDevices() {
  std::string id;
  if (rank() == 0) {
    ASSIGN_OR_RETURN(id, NcclGroup::NewId());
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, DoAllGather(id));
  ASSIGN_OR_RETURN(groups_->devices, NcclGroup::Create({.rank = rank(),
                                                        .world_size = world_size(),
                                                        .id = ids[0],
                                                        .device = options_.device,
                                                        .timeout = options_.timeout}));
  return absl::OkStatus();
}

absl::Status ProcessGroupCommunicator::DoBeginAllReduceSum(kernels::TensorView values) {
  if (!values.dense()) return absl::InvalidArgumentError("all_reduce needs a dense tensor");
  if (values.device.is_cpu()) {
    return CallC10d([&] {
      std::vector<at::Tensor> tensors = {kernels::AsTensor(values)};
      groups_->host->allreduce(tensors)->wait();
    });
  }
  if (groups_->devices == nullptr) {
    return absl::FailedPreconditionError("all_reduce of a CUDA tensor in a group that was made for the CPU");
  }
  return groups_->devices->BeginSum(values);
}

absl::Status ProcessGroupCommunicator::DoBeginAllGather(kernels::ConstTensorView mine, kernels::TensorView all) {
  if (mine.device.is_cpu()) {
    return CallC10d([&] {
      // As bytes: Gloo does not know all types.
      const at::TensorOptions bytes(at::kByte);
      at::Tensor input = at::from_blob(const_cast<void*>(mine.data), {mine.bytes()}, bytes);  // only read
      at::Tensor output = at::from_blob(all.data, {all.bytes()}, bytes);
      groups_->host->_allgather_base(output, input)->wait();
    });
  }
  if (groups_->devices == nullptr) {
    return absl::FailedPreconditionError("all_gather of a CUDA tensor in a group that was made for the CPU");
  }
  return groups_->devices->BeginGather(mine, all);
}

absl::Status ProcessGroupCommunicator::DoBeginBroadcast(kernels::TensorView values, int root) {
  if (values.device.is_cpu()) {
    return CallC10d([&] {
      // As bytes: Gloo does not know all types.
      std::vector<at::Tensor> tensors = {at::from_blob(values.data, {values.bytes()}, at::TensorOptions(at::kByte))};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      groups_->host->broadcast(tensors, options)->wait();
    });
  }
  if (groups_->devices == nullptr) {
    return absl::FailedPreconditionError("broadcast of a CUDA tensor in a group that was made for the CPU");
  }
  return groups_->devices->BeginBroadcast(values, root);
}

absl::Status ProcessGroupCommunicator::DoJoin() {
  return groups_->devices == nullptr ? absl::OkStatus() : groups_->devices->Join();
}

absl::Status ProcessGroupCommunicator::DoWatchDevice() {
  return groups_->devices == nullptr ? absl::OkStatus() : groups_->devices->Watch();
}

absl::Status ProcessGroupCommunicator::DoDeviceStatus() const {
  return groups_->devices == nullptr ? absl::OkStatus() : groups_->devices->status();
}

absl::Status ProcessGroupCommunicator::DoAllReduce(absl::Span<double> values, bool max) {
  return CallC10d([&] {
    std::vector<at::Tensor> tensors = {
        at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::TensorOptions(at::kDouble))};
    c10d::AllreduceOptions options;
    options.reduceOp = max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    groups_->host->allreduce(tensors, options)->wait();
  });
}

absl::StatusOr<std::vector<std::string>> ProcessGroupCommunicator::DoAllGather(const std::string& bytes) {
  // Sizes first, then everyone's bytes padded to the longest: all-gather wants equal shapes.
  std::vector<double> sizes(world_size(), 0.0);
  sizes[rank()] = static_cast<double>(bytes.size());
  RETURN_IF_ERROR(DoAllReduce(absl::MakeSpan(sizes), /*max=*/false));
  const auto longest = static_cast<int64_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<std::string> gathered(world_size());
  RETURN_IF_ERROR(CallC10d([&] {
    const at::TensorOptions options(at::kByte);
    std::vector<at::Tensor> input = {at::zeros({longest + 1}, options)};
    std::memcpy(input[0].data_ptr(), bytes.data(), bytes.size());
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int peer = 0; peer < world_size(); ++peer) outputs[0].push_back(at::zeros({longest + 1}, options));
    groups_->host->allgather(outputs, input)->wait();
    for (int peer = 0; peer < world_size(); ++peer) {
      gathered[peer].assign(static_cast<const char*>(outputs[0][peer].data_ptr()), static_cast<size_t>(sizes[peer]));
    }
  }));
  return gathered;
}

}  // namespace sluice::engine
