// LanguageModelRole: steps, validation and generation.

#include <c10/cuda/CUDACachingAllocator.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/failpoint.h"
#include "common/grpc_status.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "engine/model/flops.h"
#include "engine/model/inference_session.h"
#include "engine/roles/language_model_role.h"

namespace sluice::engine {
namespace {

// Adds the time between its beginning and its end to a step's phase.
class Phase {
 public:
  Phase(v1::StepMetrics* metrics, const char* name)
      : seconds_(&(*metrics->mutable_phase_seconds())[name]), start_(absl::Now()) {}
  ~Phase() { *seconds_ += absl::ToDoubleSeconds(absl::Now() - start_); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  double* const seconds_;
  const absl::Time start_;
};

double SumOfSquaredLengths(const StepBatches& batches) {
  double sum = 0;
  for (const MicroBatch& batch : batches.micro_batches) {
    for (int64_t i = 0; i < batch.sequences(); ++i) {
      const double length = batch.cu_seqlens[i + 1] - batch.cu_seqlens[i];
      sum += length * length;
    }
  }
  return sum;
}

int64_t PeakHostBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;  // Linux counts in KiB
}

int64_t PeakDeviceBytes(kernels::Device device) {
  if (!device.is_cuda()) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index);
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

}  // namespace

absl::StatusOr<LanguageModelRole::StepTotals> LanguageModelRole::RunStep(int64_t step, bool forward_only) {
  StepTotals totals;
  ASSIGN_OR_RETURN(totals.batches, train_->MicroBatchesForStep(step - 1, options_.rank, communicator_->world_size()));
  const double loss_scale = 1.0 / static_cast<double>(totals.batches.scored_tokens);
  for (const MicroBatch& batch : totals.batches.micro_batches) {
    ASSIGN_OR_RETURN(const LossSum loss,
                     forward_only ? model_->Forward(batch) : model_->ForwardBackward(batch, loss_scale));
    totals.loss += loss;
    Failpoint("engine.micro_batch");
  }
  totals.sum_of_squared_lengths = SumOfSquaredLengths(totals.batches);
  return totals;
}

absl::StatusOr<OptimizerStepResult> LanguageModelRole::ApplyGradients(double loss) {
  RETURN_IF_ERROR(communicator_->AllReduceSum(parameters_->gradients()));
  if (!std::isfinite(loss)) {
    OptimizerStepResult skipped;
    skipped.grad_norm = std::numeric_limits<double>::quiet_NaN();
    skipped.skipped = true;
    return skipped;
  }
  return optimizer_->Step(schedule_->LearningRate(schedule_steps_ + 1), schedule_->WeightDecay(schedule_steps_ + 1));
}

absl::Status LanguageModelRole::NoteSkippedStep(const StepTotals& totals) {
  ++counters_.skipped_updates;
  ++counters_.skipped_in_a_row;
  std::vector<int64_t> rows;
  for (const MicroBatch& batch : totals.batches.micro_batches) {
    rows.insert(rows.end(), batch.sample_ids.begin(), batch.sample_ids.end());
  }
  LoggerFor("engine").Warning(
      absl::StrCat("step ", steps_done_ + 1,
                   " was skipped: loss or gradient is not finite; rows of this rank: ", absl::StrJoin(rows, ",")));
  if (counters_.skipped_in_a_row < spec_.trainer().max_nonfinite_steps()) return absl::OkStatus();
  v1::Failure failure;
  failure.set_reason(v1::FAILURE_REASON_NONFINITE);
  failure.set_rank(options_.rank);
  failure.set_message(absl::StrCat("loss or gradients were not finite for ", counters_.skipped_in_a_row,
                                   " steps in a row, the last one step ", steps_done_ + 1,
                                   "; lower optim.lr, lengthen the warm-up, or look at the rows named in the log"));
  return WithFailure(absl::FailedPreconditionError(failure.message()), failure);
}

void LanguageModelRole::FillMemory(v1::StepMetrics* metrics) {
  metrics->set_peak_host_bytes(PeakHostBytes());
  metrics->set_peak_device_bytes(PeakDeviceBytes(device_));
}

absl::StatusOr<v1::StepMetrics> LanguageModelRole::TrainBatch(const v1::TrainBatchOp& op) {
  RETURN_IF_ERROR(RequireTrainable());
  const int64_t step = steps_done_ + 1;
  if (op.step() != step) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", op.step(), " is asked for, but ", steps_done_, " steps are done"));
  }
  const absl::Time start = absl::Now();
  v1::StepMetrics metrics;
  StepTotals totals;
  {
    const Phase phase(&metrics, "forward_backward");
    RETURN_IF_ERROR(parameters_->ZeroGradients());
    ASSIGN_OR_RETURN(totals, RunStep(step, /*forward_only=*/false));
  }
  std::vector<double> sums = {totals.loss.sum, totals.loss.weight, totals.sum_of_squared_lengths};
  {
    const Phase phase(&metrics, "communication");
    RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(sums)));
  }
  const double loss = sums[0] / std::max(1.0, sums[1]);
  OptimizerStepResult applied;
  {
    const Phase phase(&metrics, "optimizer");
    ASSIGN_OR_RETURN(applied, ApplyGradients(loss));
  }
  metrics.set_lr(schedule_->LearningRate(schedule_steps_ + 1));
  metrics.set_weight_decay(schedule_->WeightDecay(schedule_steps_ + 1));
  if (applied.skipped) {
    RETURN_IF_ERROR(NoteSkippedStep(totals));
  } else {
    counters_.skipped_in_a_row = 0;
    ++counters_.optimizer_updates;
  }
  const StepBatches& batches = totals.batches;
  counters_.samples += batches.rows;
  counters_.tokens += batches.tokens;
  counters_.loss_tokens += static_cast<int64_t>(sums[1]);
  ++schedule_steps_;
  ++steps_done_;

  const auto micro_batches = static_cast<int64_t>(batches.micro_batches.size());
  metrics.set_step(step);
  metrics.set_epoch(batches.epoch);
  metrics.set_loss(loss);
  metrics.set_grad_norm(applied.grad_norm);
  metrics.set_tokens(batches.tokens);
  metrics.set_scored_tokens(static_cast<int64_t>(sums[1]));
  metrics.set_token_slots(micro_batches * spec_.data().max_token_len_per_gpu() * communicator_->world_size());
  metrics.set_samples(batches.rows);
  metrics.set_micro_batches(micro_batches);
  metrics.set_model_flops(TrainingFlops(parameters_->config(), static_cast<double>(batches.tokens), sums[2]));
  metrics.set_skipped_nonfinite(applied.skipped);
  metrics.set_nonfinite_steps_total(counters_.skipped_updates);
  FillMemory(&metrics);
  metrics.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  if (metrics_log_ != nullptr) RETURN_IF_ERROR(metrics_log_->Write(metrics));
  return metrics;
}

absl::StatusOr<v1::ValidationMetrics> LanguageModelRole::InferBatch(const v1::InferBatchOp& op) {
  RETURN_IF_ERROR(RequireModel());
  if (validation_ == nullptr) return absl::FailedPreconditionError("data.val_files: there are none to validate on");
  const absl::Time start = absl::Now();
  LossSum loss;
  for (int64_t step = 0; step < validation_->steps_per_epoch(); ++step) {
    ASSIGN_OR_RETURN(const StepBatches batches,
                     validation_->MicroBatchesForStep(step, options_.rank, communicator_->world_size()));
    for (const MicroBatch& batch : batches.micro_batches) {
      ASSIGN_OR_RETURN(const LossSum part, model_->Forward(batch));
      loss += part;
    }
  }
  std::vector<double> sums = {loss.sum, loss.weight};
  RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(sums)));
  v1::ValidationMetrics metrics;
  metrics.set_step(op.step());
  metrics.set_loss(sums[0] / std::max(1.0, sums[1]));
  metrics.set_scored_tokens(static_cast<int64_t>(sums[1]));
  metrics.set_samples(validation_->rows());
  metrics.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  if (metrics_log_ != nullptr) RETURN_IF_ERROR(metrics_log_->Write(metrics));
  return metrics;
}

absl::StatusOr<v1::ForwardBackwardResult> LanguageModelRole::ForwardBackward(const v1::ForwardBackwardOp& op) {
  RETURN_IF_ERROR(RequireModel());
  if (!op.forward_only()) RETURN_IF_ERROR(RequireTrainable());
  if (op.step() < 1) return absl::InvalidArgumentError(absl::StrCat("step ", op.step(), ": steps count from 1"));
  ASSIGN_OR_RETURN(const StepTotals totals, RunStep(op.step(), op.forward_only()));
  std::vector<double> sums = {totals.loss.sum, totals.loss.weight};
  RETURN_IF_ERROR(communicator_->AllReduceSum(absl::MakeSpan(sums)));
  v1::ForwardBackwardResult result;
  result.set_loss(sums[0] / std::max(1.0, sums[1]));
  result.set_scored_tokens(static_cast<int64_t>(sums[1]));
  return result;
}

absl::StatusOr<v1::OptimizerZeroGradResult> LanguageModelRole::OptimizerZeroGrad(const v1::OptimizerZeroGradOp&) {
  RETURN_IF_ERROR(RequireTrainable());
  RETURN_IF_ERROR(parameters_->ZeroGradients());
  return v1::OptimizerZeroGradResult();
}

absl::StatusOr<v1::OptimizerStepResult> LanguageModelRole::OptimizerStep(const v1::OptimizerStepOp&) {
  RETURN_IF_ERROR(RequireTrainable());
  ASSIGN_OR_RETURN(const OptimizerStepResult applied, ApplyGradients(/*loss=*/0));
  counters_.optimizer_updates += !applied.skipped;
  counters_.skipped_updates += applied.skipped;
  v1::OptimizerStepResult result;
  result.set_grad_norm(applied.grad_norm);
  result.set_skipped_nonfinite(applied.skipped);
  return result;
}

absl::StatusOr<v1::LrSchedulerStepResult> LanguageModelRole::LrSchedulerStep(const v1::LrSchedulerStepOp&) {
  RETURN_IF_ERROR(RequireTrainable());
  ++schedule_steps_;
  v1::LrSchedulerStepResult result;
  result.set_lr(schedule_->LearningRate(schedule_steps_ + 1));
  return result;
}

absl::StatusOr<v1::GenerateResult> LanguageModelRole::Generate(const v1::GenerateOp& op) {
  RETURN_IF_ERROR(RequireModel());
  if (op.max_new_tokens() < 1) return absl::InvalidArgumentError("max_new_tokens must be at least 1");
  if (op.apply_chat_template() && encoder_->chat_template() == nullptr) {
    return absl::InvalidArgumentError("the model folder has no chat template; give the prompt as plain text (--raw)");
  }
  std::vector<std::vector<int32_t>> prompts;
  size_t longest = 0;
  for (const std::string& prompt : op.prompts()) {
    std::string text = prompt;
    if (op.apply_chat_template()) {
      const jinja::Value messages = jinja::Value::List(
          {jinja::Value::DictOf({{"role", jinja::Value::String("user")}, {"content", jinja::Value::String(prompt)}})});
      RenderOptions render;
      render.add_generation_prompt = true;
      render.special_tokens = encoder_->special_tokens();
      ASSIGN_OR_RETURN(const RenderedChat chat, encoder_->chat_template()->Render(messages, render));
      text = chat.text;
    }
    // A template writes the special tokens itself; plain text gets what the tokenizer puts before a text.
    prompts.push_back(encoder_->tokenizer().Encode(text, {.add_special_tokens = !op.apply_chat_template()}));
    if (prompts.back().empty()) return absl::InvalidArgumentError("a prompt is empty");
    longest = std::max(longest, prompts.back().size());
  }
  InferenceOptions options;
  options.max_tokens = static_cast<int64_t>(longest) + op.max_new_tokens();
  ASSIGN_OR_RETURN(const auto session, InferenceSession::Create(parameters_.get(), options));
  v1::GenerateResult result;
  for (const std::vector<int32_t>& prompt : prompts) {
    ASSIGN_OR_RETURN(const GeneratedTokens generated,
                     GenerateGreedy(*session, prompt, op.max_new_tokens(), parameters_->config().eos_token_ids));
    v1::Completion* completion = result.add_completions();
    completion->mutable_token_ids()->Add(generated.token_ids.begin(), generated.token_ids.end());
    completion->set_text(encoder_->tokenizer().Decode(generated.token_ids, {.skip_special_tokens = true}));
    completion->set_finish_reason(generated.stopped ? "stop" : "length");
  }
  return result;
}

}  // namespace sluice::engine
