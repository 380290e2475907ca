#include "engine/comm/nccl_group.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"

namespace sluice::engine {
namespace {

constexpr absl::Duration kWatchInterval = absl::Seconds(1);

absl::Status CheckCuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // not to be found by the next kernel
  return absl::InternalError(absl::StrCat("NCCL's stream: ", call, ": ", cudaGetErrorString(error)));
}

absl::Status CheckNccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("NCCL: ", call, ": ", ncclGetErrorString(result), " (", ncclGetLastError(nullptr), ")"));
}

absl::StatusOr<ncclDataType_t> TypeOf(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kFloat32:
      return ncclFloat32;
    case kernels::DType::kBFloat16:
      return ncclBfloat16;
    case kernels::DType::kFloat64:
      return ncclFloat64;
    default:
      return absl::InvalidArgumentError(absl::StrCat("all_reduce of ", std::string(kernels::Name(dtype)), " values"));
  }
}

}  // namespace

class NcclGroup::Impl {
 public:
  explicit Impl(const NcclGroupOptions& options)
      : options_(options), engine_(static_cast<cudaStream_t>(EngineStream(options.device).handle)) {}

  ~Impl() {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    if (watcher_.joinable()) watcher_.join();
    if (comm_ != nullptr) ncclCommDestroy(comm_);
    for (const Mark& mark : marks_) cudaEventDestroy(mark.event);
    if (begun_ != nullptr) cudaEventDestroy(begun_);
    if (ended_ != nullptr) cudaEventDestroy(ended_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Connect() {
    // Registering buffers while recording wants all ranks to record at the same time; ours need not.
    setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
    RETURN_IF_ERROR(CheckCuda(cudaSetDevice(options_.device.index), "set device"));
    int least = 0, greatest = 0;
    RETURN_IF_ERROR(CheckCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities"));
    // First in line for free multiprocessors: peers wait for it.
    RETURN_IF_ERROR(CheckCuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "stream"));
    RETURN_IF_ERROR(CheckCuda(cudaEventCreateWithFlags(&begun_, cudaEventDisableTiming), "event"));
    RETURN_IF_ERROR(CheckCuda(cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming), "event"));
    ncclUniqueId id;
    if (options_.id.size() != sizeof(id.internal)) return absl::InvalidArgumentError("NCCL: the id is of another size");
    std::memcpy(id.internal, options_.id.data(), sizeof(id.internal));
    RETURN_IF_ERROR(CheckNccl(ncclCommInitRank(&comm_, options_.world_size, id, options_.rank), "join the peers"));
    watcher_ = std::thread([this] { WatchUntilStopped(); });
    return absl::OkStatus();
  }

  absl::Status BeginSum(kernels::TensorView values) {
    ASSIGN_OR_RETURN(const ncclDataType_t type, TypeOf(values.dtype));
    RETURN_IF_ERROR(FollowEngine());
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(status_);
    return CheckNccl(
        ncclAllReduce(values.data, values.data, static_cast<size_t>(values.elements()), type, ncclSum, comm_, stream_),
        "all_reduce");
  }

  absl::Status BeginGather(kernels::ConstTensorView mine, kernels::TensorView all) {
    RETURN_IF_ERROR(FollowEngine());
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(status_);
    return CheckNccl(ncclAllGather(mine.data, all.data, static_cast<size_t>(mine.bytes()), ncclInt8, comm_, stream_),
                     "all_gather");
  }

  absl::Status BeginBroadcast(kernels::TensorView values, int root) {
    RETURN_IF_ERROR(FollowEngine());
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(status_);
    return CheckNccl(
        ncclBroadcast(values.data, values.data, static_cast<size_t>(values.bytes()), ncclInt8, root, comm_, stream_),
        "broadcast");
  }

  absl::Status Join() {
    RETURN_IF_ERROR(CheckCuda(cudaEventRecord(ended_, stream_), "record"));
    return CheckCuda(cudaStreamWaitEvent(engine_, ended_, 0), "wait");
  }

  absl::Status Watch() {
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(CheckCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event"));
    RETURN_IF_ERROR(CheckCuda(cudaEventRecord(event, engine_), "record"));
    absl::MutexLock lock(&mutex_);
    marks_.push_back({event, absl::Now() + options_.timeout});
    return status_;
  }

  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  // A place in the engine's stream, and when it has to be reached.
  struct Mark {
    cudaEvent_t event;
    absl::Time deadline;
  };

  // What is issued next waits for what the engine's stream has been given.
  absl::Status FollowEngine() {
    RETURN_IF_ERROR(CheckCuda(cudaEventRecord(begun_, engine_), "record"));
    return CheckCuda(cudaStreamWaitEvent(stream_, begun_, 0), "wait");
  }

  void WatchUntilStopped() {
    cudaSetDevice(options_.device.index);
    absl::MutexLock lock(&mutex_);
    while (status_.ok()) {
      if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kWatchInterval)) return;
      status_ = Look();
      if (!status_.ok()) {
        ncclCommAbort(comm_);
        comm_ = nullptr;
      }
    }
  }

  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ncclResult_t error = ncclSuccess;
    RETURN_IF_ERROR(CheckNccl(ncclCommGetAsyncError(comm_, &error), "ask for errors"));
    RETURN_IF_ERROR(CheckNccl(error, "a collective under way"));
    while (!marks_.empty() && cudaEventQuery(marks_.front().event) != cudaErrorNotReady) {
      cudaEventDestroy(marks_.front().event);
      marks_.pop_front();
    }
    if (marks_.empty() || absl::Now() < marks_.front().deadline) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat("NCCL: the GPU's work with its ", options_.world_size - 1,
                                           " peers was not done within ", absl::FormatDuration(options_.timeout),
                                           " (engine.collective_timeout_s): a peer is gone or hangs"));
  }

  const NcclGroupOptions options_;
  const cudaStream_t engine_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begun_ = nullptr, ended_ = nullptr;
  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::deque<Mark> marks_ ABSL_GUARDED_BY(mutex_);
  ncclComm_t comm_ = nullptr;  // after Connect only under mutex_
  std::thread watcher_;
};

absl::StatusOr<std::string> NcclGroup::NewId() {
  ncclUniqueId id;
  RETURN_IF_ERROR(CheckNccl(ncclGetUniqueId(&id), "make an id"));
  return std::string(id.internal, sizeof(id.internal));
}

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Create(const NcclGroupOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  RETURN_IF_ERROR(impl->Connect());
  return std::unique_ptr<NcclGroup>(new NcclGroup(std::move(impl)));
}

NcclGroup::NcclGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NcclGroup::~NcclGroup() = default;

absl::Status NcclGroup::BeginSum(kernels::TensorView values) { return impl_->BeginSum(values); }
absl::Status NcclGroup::BeginGather(kernels::ConstTensorView mine, kernels::TensorView all) {
  return impl_->BeginGather(mine, all);
}
absl::Status NcclGroup::BeginBroadcast(kernels::TensorView values, int root) {
  return impl_->BeginBroadcast(values, root);
}
absl::Status NcclGroup::Join() { return impl_->Join(); }
absl::Status NcclGroup::Watch() { return impl_->Watch(); }
absl::Status NcclGroup::status() const { return impl_->status(); }

}  // namespace sluice::engine
