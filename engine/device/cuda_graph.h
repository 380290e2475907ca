// A piece of a stream's work, recorded once and launched as one.
#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/stream.h"

namespace sluice::engine {

class CudaGraph {
 public:
  // Records what `body` issues on `stream`; nothing of it runs. `body` must have run once before, so that plans and
  // workspaces are there. Its error, or Internal with CUDA's words.
  static absl::StatusOr<std::unique_ptr<CudaGraph>> Capture(kernels::Stream stream,
                                                            absl::FunctionRef<absl::Status()> body);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  absl::Status Launch(kernels::Stream stream) const;

 private:
  explicit CudaGraph(void* executable) : executable_(executable) {}
  void* executable_;  // a cudaGraphExec_t
};

// Work that is issued again and again alike.
class RecordedWork {
 public:
  // On CUDA the first time as it is, which makes plans and chooses algorithms; the second time it is recorded, and from
  // then on launched as one. On the CPU as it is. REQUIRES: the same launches with the same pointers each time.
  absl::Status Run(kernels::Stream stream, absl::FunctionRef<absl::Status()> body);

  // What was recorded: pointers have changed. Plans and choices stay.
  void Forget() { graph_.reset(); }

 private:
  bool ran_ = false;
  std::unique_ptr<CudaGraph> graph_;
};

}  // namespace sluice::engine
