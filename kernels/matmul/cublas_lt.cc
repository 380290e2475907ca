// The products on CUDA: a plan for each distinct product, made at its first use and kept for the life of the process.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "kernels/cuda/workspace.h"
#include "kernels/matmul/algorithm_file.h"
#include "kernels/matmul/backends.h"
#include "kernels/matmul/gemm_plan.h"
#include "kernels/matmul/gemm_tuning.h"

namespace sluice::kernels {
namespace cuda {
namespace {

constexpr int kCandidates = 16;
constexpr double kTuningMilliseconds = 6.0;  // of work per candidate
constexpr double kLoadMilliseconds = 60.0;   // before the first measurement of a product

struct GemmPlan {
  GemmProblem problem;
  cublasLtMatmulAlgo_t algorithm;
  int64_t workspace_bytes;
};

absl::Status Failed(const GemmKey& key, const char* what, cublasStatus_t status) {
  return absl::InternalError(
      absl::StrCat("matmul: ", what, " for ", ToString(key), ": ", cublasLtGetStatusString(status)));
}

bool IsCapturing(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &capture);
  return capture != cudaStreamCaptureStatusNone;
}

// Device time of a piece of work. Waits for it.
class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void Start() { cudaEventRecord(begin_, stream_); }
  double Milliseconds() {
    float milliseconds = 0;
    cudaEventRecord(end_, stream_);
    cudaEventSynchronize(end_);
    cudaEventElapsedTime(&milliseconds, begin_, end_);
    return milliseconds;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

class PlanCache {
 public:
  static PlanCache& Get() {
    static PlanCache* const cache = new PlanCache;  // never destroyed: cuBLASLt may be gone by then
    return *cache;
  }

  absl::Status SetTuning(const GemmTuning& tuning) {
    absl::MutexLock lock(&mutex_);
    plans_.clear();
    saved_.clear();
    stats_ = {};
    tuning_ = tuning;
    if (tuning_.enabled && !tuning_.cache_file.empty()) {
      ASSIGN_OR_RETURN(saved_, ReadAlgorithms(tuning_.cache_file, Machine()));
    }
    return absl::OkStatus();
  }

  GemmTuningStats stats() {
    absl::MutexLock lock(&mutex_);
    stats_.plans = static_cast<int64_t>(plans_.size());
    return stats_;
  }

  absl::Status Run(const MatMul& args, Stream stream) {
    absl::MutexLock lock(&mutex_);
    const GemmKey key = KeyOf(args);
    auto it = plans_.find(key);
    if (it == plans_.end()) {
      ASSIGN_OR_RETURN(GemmPlan plan, MakePlan(key, args, stream));
      it = plans_.emplace(key, std::move(plan)).first;
    }
    const GemmPlan& plan = it->second;
    ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Take("matmul", stream, plan.workspace_bytes));
    const cublasStatus_t status = plan.problem.Launch(handle_, args, args.c.data, plan.algorithm, workspace.data(),
                                                      plan.workspace_bytes, HandleOf(stream));
    if (status != CUBLAS_STATUS_SUCCESS) return Failed(key, "launch", status);
    return absl::OkStatus();
  }

 private:
  static std::string Machine() {
    int device = 0;
    cudaDeviceProp properties = {};
    if (cudaGetDevice(&device) == cudaSuccess) cudaGetDeviceProperties(&properties, device);
    return absl::StrCat(cublasLtGetVersion(), " ", properties.name);
  }

  absl::StatusOr<GemmPlan> MakePlan(const GemmKey& key, const MatMul& args, Stream stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (handle_ == nullptr) {
      const cublasStatus_t status = cublasLtCreate(&handle_);
      if (status != CUBLAS_STATUS_SUCCESS) return Failed(key, "cublasLtCreate", status);
    }
    ASSIGN_OR_RETURN(GemmProblem problem, GemmProblem::Create(key));
    const auto saved = saved_.find(ToString(key));
    if (saved != saved_.end()) {
      absl::StatusOr<GemmPlan> plan = PlanOf(problem, saved->second.algorithm);
      if (plan.ok()) {
        ++stats_.from_file;
        return plan;
      }
    }
    if (key.accumulates) {
      // The product that overwrites was timed already: the same algorithm is the fastest here too, and timing this one
      // would need an output of its own.
      GemmKey twin = key;
      twin.accumulates = false;
      if (const auto found = plans_.find(twin); found != plans_.end()) {
        absl::StatusOr<GemmPlan> plan = PlanOf(problem, found->second.algorithm);
        if (plan.ok()) return plan;
      }
    }
    ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulHeuristicResult_t> candidates, Candidates(key, problem));
    size_t choice = 0;
    if (tuning_.enabled && candidates.size() > 1 && !IsCapturing(HandleOf(stream))) {
      ASSIGN_OR_RETURN(choice, Fastest(key, problem, candidates, args, stream));
    }
    return GemmPlan{std::move(problem), candidates[choice].algo,
                    static_cast<int64_t>(candidates[choice].workspaceSize)};
  }

  // NotFound where cuBLASLt does not take the algorithm for the problem; `problem` is then as it was.
  absl::StatusOr<GemmPlan> PlanOf(GemmProblem& problem, const cublasLtMatmulAlgo_t& algorithm)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    cublasLtMatmulHeuristicResult_t checked = {};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, problem.operation(), problem.a(), problem.b(),
                                                          problem.c(), problem.c(), &algorithm, &checked);
    const auto workspace_bytes = static_cast<int64_t>(checked.workspaceSize);
    if (status != CUBLAS_STATUS_SUCCESS || workspace_bytes > kMatMulWorkspace) {
      return absl::NotFoundError("matmul: the algorithm does not fit the problem");
    }
    return GemmPlan{std::move(problem), algorithm, workspace_bytes};
  }

  absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Candidates(const GemmKey& key,
                                                                          const GemmProblem& problem)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    if (status != CUBLAS_STATUS_SUCCESS) return Failed(key, "PreferenceCreate", status);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMatMulWorkspace));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.align_c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.align_c));
    std::vector<cublasLtMatmulHeuristicResult_t> candidates(kCandidates);
    int found = 0;
    status = cublasLtMatmulAlgoGetHeuristic(handle_, problem.operation(), problem.a(), problem.b(), problem.c(),
                                            problem.c(), preference, kCandidates, candidates.data(), &found);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) return Failed(key, "no algorithm", status);
    candidates.resize(static_cast<size_t>(found));
    return candidates;
  }

  // Times the candidates on the operands at hand. A product that accumulates writes to memory of its own meanwhile.
  absl::StatusOr<size_t> Fastest(const GemmKey& key, const GemmProblem& problem,
                                 const std::vector<cublasLtMatmulHeuristicResult_t>& candidates, const MatMul& args,
                                 Stream stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const cudaStream_t handle = HandleOf(stream);
    ASSIGN_OR_RETURN(const Workspace workspace, Workspace::Take("matmul", stream, kMatMulWorkspace));
    std::optional<Workspace> output;
    void* c = args.c.data;
    if (key.accumulates) {
      Stream without_workspace = stream;
      without_workspace.workspace_bytes = 0;
      ASSIGN_OR_RETURN(output, Workspace::Take("matmul tuning", without_workspace,
                                               args.c.dim(0) * args.c.row_stride * SizeOf(args.c.dtype)));
      c = output->data();
    }
    Timer total(handle), timer(handle);
    total.Start();
    const auto run = [&](size_t candidate, int count) {
      for (int i = 0; i < count; ++i) {
        const cublasStatus_t status =
            problem.Launch(handle_, args, c, candidates[candidate].algo, workspace.data(), kMatMulWorkspace, handle);
        if (status != CUBLAS_STATUS_SUCCESS) return false;
      }
      return true;
    };
    timer.Start();
    if (!run(0, 2)) return Failed(key, "launch", CUBLAS_STATUS_EXECUTION_FAILED);
    const double once = std::max(timer.Milliseconds() / 2, 1e-3);
    run(0, static_cast<int>(std::min(kLoadMilliseconds / once, 2000.0)) + 1);
    const int repeats = static_cast<int>(std::clamp(kTuningMilliseconds / once, 3.0, 500.0));
    size_t best = 0;
    double best_milliseconds = 0;
    for (size_t candidate = 0; candidate < candidates.size(); ++candidate) {
      if (!run(candidate, 1)) continue;
      timer.Start();
      run(candidate, repeats);
      const double milliseconds = timer.Milliseconds() / repeats;
      if (best_milliseconds == 0 || milliseconds < best_milliseconds) {
        best = candidate;
        best_milliseconds = milliseconds;
      }
    }
    ++stats_.tuned;
    stats_.tuning_seconds += total.Milliseconds() / 1e3;
    saved_[ToString(key)] = {candidates[best].algo, best_milliseconds * 1e3};
    if (!tuning_.cache_file.empty()) RETURN_IF_ERROR(WriteAlgorithms(tuning_.cache_file, Machine(), saved_));
    return best;
  }

  absl::Mutex mutex_;
  cublasLtHandle_t handle_ ABSL_GUARDED_BY(mutex_) = nullptr;
  GemmTuning tuning_ ABSL_GUARDED_BY(mutex_);
  std::map<GemmKey, GemmPlan> plans_ ABSL_GUARDED_BY(mutex_);
  SavedAlgorithms saved_ ABSL_GUARDED_BY(mutex_);
  GemmTuningStats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status Run(const MatMul& args, Stream stream) {
  if (args.c.elements() == 0) return absl::OkStatus();
  return PlanCache::Get().Run(args, stream);
}

}  // namespace cuda

absl::Status SetGemmTuning(const GemmTuning& tuning) { return cuda::PlanCache::Get().SetTuning(tuning); }

GemmTuningStats GetGemmTuningStats() { return cuda::PlanCache::Get().stats(); }

}  // namespace sluice::kernels
