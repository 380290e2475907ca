// Attention on CUDA through cuDNN: plans are built once per shape and shared by all layers.
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "kernels/attention/backends.h"
#include "kernels/attention/cudnn_graph.h"
#include "kernels/cuda/workspace.h"

namespace sluice::kernels {
namespace cuda {
namespace {

using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float, int64_t, bool, bool>;

Key KeyOf(const AttentionShape& s, bool backward) {
  return {s.tokens,  s.sequences, s.longest,
          s.q_heads, s.kv_heads,  s.head_dim,
          s.scale,   s.window,    backward && s.deterministic,
          backward};
}

class GraphCache {
 public:
  static GraphCache& Get() {
    static GraphCache* const cache = new GraphCache;  // never destroyed: cuDNN may be gone by then
    return *cache;
  }

  absl::StatusOr<const AttentionGraph*> Find(const AttentionShape& shape, bool backward) {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<AttentionGraph>& graph = graphs_[KeyOf(shape, backward)];
    if (graph == nullptr) {
      RETURN_IF_ERROR(OpenHandle());
      ASSIGN_OR_RETURN(graph, BuildAttentionGraph(shape, backward, handle_));
    }
    return graph.get();
  }

  absl::Status Run(const AttentionShape& shape, bool backward, const AttentionPointers& pointers, Stream stream) {
    ASSIGN_OR_RETURN(const AttentionGraph* graph, Find(shape, backward));
    ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Take("attention", stream, graph->workspace_bytes()));
    absl::MutexLock lock(&mutex_);
    cudnnSetStream(handle_, HandleOf(stream));
    return graph->Execute(handle_, pointers, workspace.data());
  }

 private:
  absl::Status OpenHandle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (handle_ != nullptr) return absl::OkStatus();
    const cudnnStatus_t status = cudnnCreate(&handle_);
    if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("attention: cudnnCreate: ", cudnnGetErrorString(status)));
  }

  absl::Mutex mutex_;
  cudnnHandle_t handle_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::map<Key, std::unique_ptr<AttentionGraph>> graphs_ ABSL_GUARDED_BY(mutex_);
};

template <typename Args>
AttentionShape ShapeOf(const Args& args) {
  return {.tokens = args.q.dim(0),
          .sequences = args.bounds.dim(1) - 1,
          .longest = args.longest,
          .q_heads = args.q.dim(1),
          .kv_heads = args.k.dim(1),
          .head_dim = args.q.dim(2),
          .scale = args.scale,
          .window = args.window > 0 ? args.window : 0};
}

const int32_t* StartsOf(ConstTensorView bounds, int row) { return bounds.as<int32_t>() + row * bounds.dim(1); }

}  // namespace

absl::Status Forward(const AttentionForward& args, Stream stream) {
  const AttentionShape shape = ShapeOf(args);
  const AttentionPointers pointers = {.q = args.q.data,
                                      .k = args.k.data,
                                      .v = args.v.data,
                                      .out = args.out.data,
                                      .logsumexp = args.logsumexp.data,
                                      .bounds = args.bounds.as<int32_t>()};
  RETURN_IF_ERROR(GraphCache::Get().Run(shape, /*backward=*/false, pointers, stream));
  return ZeroTails({{args.out, StartsOf(args.bounds, 1) + shape.sequences}}, stream);
}

absl::Status Backward(const AttentionBackward& args, Stream stream) {
  AttentionShape shape = ShapeOf(args);
  shape.deterministic = args.deterministic;
  const AttentionPointers pointers = {.q = args.q.data,
                                      .k = args.k.data,
                                      .v = args.v.data,
                                      .out = args.out.data,
                                      .logsumexp = args.logsumexp.data,
                                      .dout = args.dout.data,
                                      .dq = args.dq.data,
                                      .dk = args.dk.data,
                                      .dv = args.dv.data,
                                      .bounds = args.bounds.as<int32_t>()};
  RETURN_IF_ERROR(GraphCache::Get().Run(shape, /*backward=*/true, pointers, stream));
  const int32_t* const query_end = StartsOf(args.bounds, 1) + shape.sequences;
  const int32_t* const key_end = StartsOf(args.bounds, 2) + shape.sequences;
  return ZeroTails({{args.dq, query_end}, {args.dk, key_end}, {args.dv, key_end}}, stream);
}

}  // namespace cuda

bool IsCapturableAttention(DType dtype, int64_t head_dim) {
  return dtype == DType::kBFloat16 && head_dim % 8 == 0 && head_dim <= 128;
}

absl::StatusOr<int64_t> PrepareAttention(const AttentionShape& shape, bool backward, Stream stream) {
  int64_t workspace_bytes = 0;
  for (const bool direction : {false, true}) {
    if (direction && !backward) continue;
    ASSIGN_OR_RETURN(const cuda::AttentionGraph* graph, cuda::GraphCache::Get().Find(shape, direction));
    workspace_bytes = std::max(workspace_bytes, graph->workspace_bytes());
  }
  return workspace_bytes;
}

}  // namespace sluice::kernels
