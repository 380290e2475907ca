#include "engine/device/cuda_graph.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

absl::Status Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // not to be found by the next kernel
  return absl::InternalError(absl::StrCat("CUDA graph: ", call, ": ", cudaGetErrorString(error)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaGraph>> CudaGraph::Capture(kernels::Stream stream,
                                                              absl::FunctionRef<absl::Status()> body) {
  const auto handle = static_cast<cudaStream_t>(stream.handle);
  // Thread-local: other threads (gRPC, NCCL's watchdog) may call CUDA meanwhile.
  absl::Status status = Check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), "begin capture");
  if (!status.ok()) return status;
  const absl::Status recorded = body();
  cudaGraph_t graph = nullptr;
  status = Check(cudaStreamEndCapture(handle, &graph), "end capture");
  if (!recorded.ok()) status = recorded;
  cudaGraphExec_t executable = nullptr;
  if (status.ok()) status = Check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!status.ok()) return status;
  return std::unique_ptr<CudaGraph>(new CudaGraph(executable));
}

CudaGraph::~CudaGraph() { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)); }

absl::Status CudaGraph::Launch(kernels::Stream stream) const {
  return Check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), static_cast<cudaStream_t>(stream.handle)),
               "launch");
}

absl::Status RecordedWork::Run(kernels::Stream stream, absl::FunctionRef<absl::Status()> body) {
  if (stream.device.is_cpu() || !ran_) {
    ran_ = true;
    return body();
  }
  if (graph_ == nullptr) {
    ASSIGN_OR_RETURN(graph_, CudaGraph::Capture(stream, body));
  }
  return graph_->Launch(stream);
}

}  // namespace sluice::engine
