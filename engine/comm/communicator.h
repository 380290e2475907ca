// Collective operations between the ranks of a job.
//
// Every rank calls the same operations in the same order. Each operation has a sequence number, from 1; number and name
// of the latest are readable from any thread, so that a heartbeat can say where a hanging rank stands. All other
// methods are for one thread at a time.
//
// Errors: Aborted, naming rank, operation and bytes, when a peer is gone or the time-out has passed. The communicator
// is unusable afterwards: the attempt ends.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/tensor_view.h"

namespace sluice::engine {

struct CommunicatorOptions {
  int rank = 0;
  int world_size = 1;
  // Where the ranks meet: "file:PATH" (all on one host) or "tcp:HOST:PORT" (served by rank 0's RendezvousServer). Not
  // used where world_size is 1.
  std::string rendezvous;
  // Of the ranks that make a group of their own beside that of all: its name, the same for all of them and unlike any
  // other group's; `rank` and `world_size` are those in the group. Empty: the group of all.
  std::string group;
  // Address of the interface that this rank's peers connect to.
  std::string host = "127.0.0.1";
  // CUDA tensors go over NCCL, everything in host memory over Gloo.
  kernels::Device device;
  absl::Duration timeout = absl::Minutes(10);
};

// The operation a rank is in, or finished last.
struct CollectiveState {
  int64_t sequence = 0;
  std::string name;
};

class Communicator {
 public:
  // Connects to all peers, within the time-out. A world of one connects to nobody and its operations do nothing.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const CommunicatorOptions& options);

  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  CollectiveState state() const;

  // Sums over all ranks, in place. Views: dense fp32, bf16 or fp64, on the communicator's device or on the CPU. On CUDA
  // the sum is issued on the engine's stream, not waited for.
  absl::Status AllReduceSum(kernels::TensorView values);

  // The same in two halves, so that collectives run beside the computation: Begin... issues one on what the engine's
  // stream has computed so far; what is issued on that stream before Join must not touch its tensors. On CUDA both may
  // be recorded into a graph, begun and joined in one recording; after each launch of it: WatchDevice. On the CPU
  // Begin... is the whole of it.
  absl::Status BeginAllReduceSum(kernels::TensorView values);
  // Everyone's `mine`, by rank, one after the other in `all`. Dense views of any type, on one device; `mine` is of one
  // size on all ranks, and `all` has world_size() times its elements. REQUIRES: world_size() > 1.
  absl::Status BeginAllGather(kernels::ConstTensorView mine, kernels::TensorView all);
  absl::Status Join();

  // `values` of the rank `root` to all, in place. A dense view of any type, on the communicator's device or on the CPU.
  // On CUDA issued on the engine's stream, not waited for.
  absl::Status Broadcast(kernels::TensorView values, int root);

  // On CUDA: from now on the time-out runs for the collectives that were issued so far.
  absl::Status WatchDevice() { return DoWatchDevice(); }

  // On CUDA: Aborted where collectives were given up, and with them all that was computed from their results. To be
  // asked after the device was waited for and before a result is believed.
  absl::Status device_status() const { return DoDeviceStatus(); }

  // Sums over all ranks, in place, in host memory: counts and losses.
  absl::Status AllReduceSum(absl::Span<double> values);

  // Largest over all ranks, in place.
  absl::Status AllReduceMax(absl::Span<double> values);

  // Everyone's bytes, by rank.
  absl::StatusOr<std::vector<std::string>> AllGather(const std::string& bytes);

  // Returns when all ranks have called it.
  absl::Status Barrier();

  // Makes all ranks agree on the outcome of something each did alone: OK where it was OK everywhere, else the first
  // failed rank's status with "rank N: " before it (without that where there is one rank only). A rank that failed
  // alone before a collective would leave its peers waiting; call this first.
  absl::Status Agree(const absl::Status& local);

 protected:
  Communicator(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

 private:
  virtual absl::Status DoBeginAllReduceSum(kernels::TensorView values) = 0;
  virtual absl::Status DoBeginAllGather(kernels::ConstTensorView mine, kernels::TensorView all) = 0;
  virtual absl::Status DoBeginBroadcast(kernels::TensorView values, int root) = 0;
  virtual absl::Status DoJoin() = 0;
  virtual absl::Status DoWatchDevice() = 0;
  virtual absl::Status DoDeviceStatus() const = 0;
  virtual absl::Status DoAllReduce(absl::Span<double> values, bool max) = 0;
  virtual absl::StatusOr<std::vector<std::string>> DoAllGather(const std::string& bytes) = 0;

  // Notes the operation, and puts its place before an error's message.
  void Enter(const char* name);
  absl::Status Leave(const absl::Status& status, int64_t bytes) const;

  const int rank_;
  const int world_size_;
  mutable absl::Mutex mutex_;
  CollectiveState state_ ABSL_GUARDED_BY(mutex_);
};

// The meeting point of ranks on several hosts: a key-value store served by rank 0's process, from before the peers know
// its address until the end. Only for ranks on several hosts: it listens on all interfaces.
class RendezvousServer {
 public:
  // Listens on a free port. Unavailable: none can be had.
  static absl::StatusOr<std::unique_ptr<RendezvousServer>> Start();
  virtual ~RendezvousServer() = default;
  virtual int port() const = 0;
};

}  // namespace sluice::engine
