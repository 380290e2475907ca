#include "engine/bench/train_bench.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/build_info.h"
#include "common/status_macros.h"
#include "engine/bench/ceiling.h"
#include "engine/bench/kernel_profile.h"
#include "engine/bench/model_shapes.h"
#include "engine/data/batch_plan.h"
#include "engine/device/engine_stream.h"
#include "engine/device/phase_timer.h"
#include "engine/model/flops.h"
#include "engine/model/parameters.h"
#include "kernels/matmul/gemm_tuning.h"

namespace sluice::engine {
namespace {

constexpr double kDataSheetFlops = 989e12;  // bf16, dense, H100 SXM and H200
constexpr int kDistinctSteps = 4;           // steps with tokens of their own, taken in turn

struct BenchStep {
  std::vector<MicroBatch> batches;
  int64_t tokens = 0;  // of the sequences
  int64_t scored = 0;
  double sum_of_squared_lengths = 0;
};

// Lengths from the shortest to the longest in equal steps: rows of a real data set, of which no two are alike. As many
// as fill `accumulate` micro-batches to less than one short row.
std::vector<int64_t> Lengths(const TrainBenchOptions& options, int64_t slots) {
  std::vector<int64_t> lengths;
  if (options.shortest >= 1.0) {
    lengths.assign(static_cast<size_t>(slots / options.sequence), options.sequence);
    return lengths;
  }
  const double mean = (1 + options.shortest) / 2 * static_cast<double>(options.sequence);
  const int64_t count = static_cast<int64_t>(static_cast<double>(slots) * 0.985 / mean);
  for (int64_t i = 0; i < count; ++i) {
    const double part = options.shortest + (1 - options.shortest) * static_cast<double>(i) /
                                               static_cast<double>(std::max<int64_t>(count - 1, 1));
    lengths.push_back(std::max<int64_t>(2, static_cast<int64_t>(part * static_cast<double>(options.sequence))));
  }
  return lengths;
}

absl::StatusOr<BenchStep> MakeStep(const TrainBenchOptions& options, int64_t vocab_size, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab_size - 1));
  const std::vector<int64_t> lengths = Lengths(options, options.tokens * options.accumulate);
  ASSIGN_OR_RETURN(const BatchPlan plan, PlanBatch(lengths, {.max_tokens = options.tokens}));
  BenchStep step;
  for (const std::vector<int32_t>& places : plan.ranks[0]) {
    std::vector<std::vector<int32_t>> ids;
    std::vector<std::vector<uint8_t>> masks;
    for (const int32_t place : places) {
      const auto length = static_cast<size_t>(lengths[static_cast<size_t>(place)]);
      std::generate_n(std::back_inserter(ids.emplace_back()), length, [&] { return token(random); });
      masks.emplace_back(length, uint8_t{1});
      step.tokens += static_cast<int64_t>(length);
      step.sum_of_squared_lengths += static_cast<double>(length) * static_cast<double>(length);
    }
    std::vector<TokenSpan> spans;
    for (size_t i = 0; i < ids.size(); ++i) {
      spans.push_back({ids[i].data(), masks[i].data(), static_cast<int64_t>(ids[i].size()), static_cast<int64_t>(i)});
    }
    step.batches.push_back(PackMicroBatch(spans, options.tokens));
    step.scored += step.batches.back().scored_tokens();
  }
  return step;
}

class Trainer {
 public:
  explicit Trainer(Communicator& communicator) : communicator_(communicator) {}

  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainBenchOptions& options, const ModelConfig& config,
                                                         Communicator& communicator) {
    auto trainer = std::make_unique<Trainer>(communicator);
    trainer->stream_ = EngineStream(options.device);
    ASSIGN_OR_RETURN(trainer->parameters_,
                     Parameters::CreateRandom(config, {.dtype = options.dtype, .device = options.device}, 1));
    ASSIGN_OR_RETURN(trainer->optimizer_,
                     AdamWOptimizer::Create(trainer->parameters_.get(), options.optimizer_options));
    ASSIGN_OR_RETURN(trainer->model_, CausalLm::Create(trainer->parameters_.get(), options.model_options));
    return trainer;
  }

  // Issues forward and backward of a step.
  absl::Status Issue(const BenchStep& step) {
    next_phases_ = std::make_unique<PhaseTimer>(stream_);
    RETURN_IF_ERROR(model_->ResetLoss());
    GradientMode mode = GradientMode::kOverwrite;
    const double loss_scale = 1.0 / static_cast<double>(step.scored * communicator_.world_size());
    for (const MicroBatch& batch : step.batches) {
      Communicator* sum_over = &batch == &step.batches.back() ? &communicator_ : nullptr;
      RETURN_IF_ERROR(model_->ForwardBackward(batch, loss_scale, {mode, sum_over}));
      mode = GradientMode::kAccumulate;
    }
    next_phases_->End("forward_backward");
    return absl::OkStatus();
  }

  // Ends the issued step, which was `step`, as the engine's role does: on a GPU the next one is issued before this
  // one's results are waited for.
  absl::Status Finish(const BenchStep& step, const BenchStep* next) {
    const std::unique_ptr<PhaseTimer> phases = std::move(next_phases_);
    RETURN_IF_ERROR(communicator_.AllReduceSum(model_->loss_sum()));
    RETURN_IF_ERROR(optimizer_->Step(1e-5, 0.01, model_->loss_sum()));
    phases->End("optimizer");
    if (next != nullptr) RETURN_IF_ERROR(Issue(*next));
    ASSIGN_OR_RETURN(const OptimizerStepResult applied, optimizer_->Read());
    RETURN_IF_ERROR(communicator_.device_status());
    loss_ = applied.loss_sum / static_cast<double>(step.scored * communicator_.world_size());
    grad_norm_ = applied.grad_norm;
    phase_seconds_ = phases->Seconds();
    return absl::OkStatus();
  }

  double loss() const { return loss_; }
  double grad_norm() const { return grad_norm_; }
  const std::map<std::string, double>& phase_seconds() const { return phase_seconds_; }
  const Parameters& parameters() const { return *parameters_; }
  int64_t optimizer_bytes() const { return optimizer_->bytes(); }
  int64_t model_bytes() const { return model_->bytes(); }

 private:
  Communicator& communicator_;
  kernels::Stream stream_;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<AdamWOptimizer> optimizer_;
  std::unique_ptr<CausalLm> model_;
  std::unique_ptr<PhaseTimer> next_phases_;
  double loss_ = 0, grad_norm_ = 0;
  std::map<std::string, double> phase_seconds_;
};

double GiB(int64_t bytes) { return std::round(static_cast<double>(bytes) / (1 << 30) * 100) / 100; }

int64_t PeakDeviceBytes(kernels::Device device) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index);
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

}  // namespace

absl::Status RunTrainBench(const TrainBenchOptions& given, Communicator& communicator) {
  TrainBenchOptions options = given;
  options.model_options.token_slots = options.tokens;
  ASSIGN_OR_RETURN(const ModelConfig config, ModelShape(options.model, options.layers));
  std::vector<BenchStep> steps;
  for (int i = 0; i < kDistinctSteps; ++i) {
    const int seed = 1 + i + kDistinctSteps * communicator.rank();
    ASSIGN_OR_RETURN(steps.emplace_back(), MakeStep(options, config.vocab_size, static_cast<uint64_t>(seed)));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, Trainer::Create(options, config, communicator));
  std::vector<double> seconds, losses, norms;
  const auto step_at = [&](int i) -> const BenchStep& { return steps[static_cast<size_t>(i % kDistinctSteps)]; };
  RETURN_IF_ERROR(trainer->Issue(step_at(0)));
  for (int i = 0; i < options.steps; ++i) {
    const absl::Time start = absl::Now();
    RETURN_IF_ERROR(trainer->Finish(step_at(i), i + 1 < options.steps ? &step_at(i + 1) : nullptr));
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
    losses.push_back(trainer->loss());
    norms.push_back(trainer->grad_norm());
  }
  // The last one has no step after it.
  std::vector<double> timed(seconds.begin() + static_cast<int64_t>(seconds.size() / 2), seconds.end() - 1);
  std::sort(timed.begin(), timed.end());
  const double step_seconds = timed[timed.size() / 2];
  const BenchStep& step = steps[0];
  const double flops = TrainingFlops(config, static_cast<double>(step.tokens), step.sum_of_squared_lengths);

  nlohmann::ordered_json line = {
      {"run", "train"},
      {"model", options.model},
      {"gpus", communicator.world_size()},
      {"layers", config.layers},
      {"dtype", kernels::Name(options.dtype)},
      {"tokens", options.tokens},
      {"sequence", options.sequence},
      {"shortest", options.shortest},
      {"accumulate", static_cast<int64_t>(step.batches.size())},
      {"master_weights", options.optimizer_options.master_weights},
      {"moments", kernels::Name(options.optimizer_options.moments_dtype)},
      {"recompute", static_cast<int>(options.model_options.recompute)},
      {"deterministic", options.model_options.deterministic},
      {"cuda_graphs", options.model_options.cuda_graphs},
      {"tokens_per_s", std::round(static_cast<double>(step.tokens) / step_seconds)},
      {"step_ms", std::round(step_seconds * 1e5) / 100},
      {"fill", std::round(static_cast<double>(step.tokens) * 1e4 /
                          static_cast<double>(options.tokens * static_cast<int64_t>(step.batches.size()))) /
                   1e4},
      {"tflops", std::round(flops / step_seconds / 1e10) / 100},
      {"first_loss", losses.front()},
      {"last_loss", losses.back()},
      {"first_grad_norm", norms.front()},
      {"version", BuildVersion()}};
  for (const auto& [name, phase] : trainer->phase_seconds()) line[name + "_ms"] = std::round(phase * 1e5) / 100;
  line["parameters_gib"] = GiB(trainer->parameters().bytes());
  line["optimizer_gib"] = GiB(trainer->optimizer_bytes());
  line["activations_gib"] = GiB(trainer->model_bytes());
  if (options.device.is_cuda()) {
    line["workspace_gib"] = GiB(EngineStream(options.device).workspace_bytes);
    line["peak_gib"] = GiB(PeakDeviceBytes(options.device));
    line["mfu_989"] = std::round(flops / step_seconds / kDataSheetFlops * 1e4) / 1e4;
    ASSIGN_OR_RETURN(const Ceiling ceiling, MeasureCeiling(EngineStream(options.device)));
    line["gemm_ceiling_tflops"] = std::round(ceiling.gemm_flops_per_second / 1e11) / 10;
    line["mfu_ceiling"] = std::round(flops / step_seconds / ceiling.gemm_flops_per_second * 1e4) / 1e4;
    const kernels::GemmTuningStats tuning = kernels::GetGemmTuningStats();
    line["gemm_plans"] = tuning.plans;
    line["gemm_tuned"] = tuning.tuned;
    line["gemm_tuning_s"] = std::round(tuning.tuning_seconds * 100) / 100;
  }
  const bool prints = communicator.rank() == 0;
  if (prints) std::cout << line.dump() << std::endl;
  if (!options.profile || options.device.is_cpu()) return absl::OkStatus();
  RETURN_IF_ERROR(trainer->Issue(step));
  if (prints) RETURN_IF_ERROR(StartKernelProfile());
  RETURN_IF_ERROR(trainer->Finish(step, &step));
  RETURN_IF_ERROR(Synchronize(options.device));
  if (!prints) return absl::OkStatus();
  ASSIGN_OR_RETURN(const KernelProfile profile, StopKernelProfile());
  PrintKernelProfile(profile);
  return absl::OkStatus();
}

}  // namespace sluice::engine
