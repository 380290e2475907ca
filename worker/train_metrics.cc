#include "worker/train_metrics.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sluice::worker {
namespace {

constexpr const char* kStepResults[] = {"applied", "skipped_nonfinite", "failed"};
constexpr const char* kTokenKinds[] = {"scored", "context", "padding"};
constexpr const char* kPhases[] = {"data", "forward_backward", "communication", "optimizer"};
constexpr const char* kCheckpointResults[] = {"committed", "failed"};

void ExportStep(Metrics* metrics, const std::string& job_id, const v1::StepMetrics& step) {
  metrics->Set(MetricId::kTrainStep, {job_id}, step.step());
  metrics->Set(MetricId::kTrainLastStepTime, {job_id}, absl::ToUnixMillis(absl::Now()) / 1000.0);
  metrics->Increment(MetricId::kTrainSteps, {job_id, step.skipped_nonfinite() ? "skipped_nonfinite" : "applied"});
  metrics->Increment(MetricId::kNonfinite, {job_id}, step.skipped_nonfinite() ? 1 : 0);
  metrics->Increment(MetricId::kTrainTokens, {job_id, "scored"}, step.scored_tokens());
  metrics->Increment(MetricId::kTrainTokens, {job_id, "context"}, step.tokens() - step.scored_tokens());
  metrics->Increment(MetricId::kTrainTokens, {job_id, "padding"}, step.token_slots() - step.tokens());
  metrics->Increment(MetricId::kTrainSamples, {job_id}, step.samples());
  metrics->Increment(MetricId::kTrainFlops, {job_id}, step.model_flops());
  metrics->Set(MetricId::kTrainLoss, {job_id}, step.loss());
  metrics->Set(MetricId::kTrainGradNorm, {job_id}, step.grad_norm());
  metrics->Set(MetricId::kTrainLearningRate, {job_id}, step.lr());
  metrics->Observe(MetricId::kStepDuration, {job_id}, step.seconds());
  for (const auto& [phase, seconds] : step.phase_seconds()) {
    metrics->Increment(MetricId::kPhaseSeconds, {job_id, phase}, seconds);
  }
}

void ExportCheckpoint(Metrics* metrics, const std::string& job_id, const v1::CheckpointResult& checkpoint) {
  metrics->Increment(MetricId::kCheckpoints, {job_id, "committed"});
  metrics->Observe(MetricId::kCheckpointDuration, {job_id}, checkpoint.seconds());
  metrics->Set(MetricId::kCheckpointBytes, {job_id}, checkpoint.bytes());
  metrics->Set(MetricId::kCheckpointLastStep, {job_id}, checkpoint.step());
  metrics->Set(MetricId::kCheckpointLastSuccess, {job_id}, absl::ToUnixMillis(absl::Now()) / 1000.0);
}

}  // namespace

void ExportTrainMetrics(Metrics* metrics, const std::string& job_id, const v1::StageResponse& response) {
  switch (response.result_case()) {
    case v1::StageResponse::kTrainBatch:
      ExportStep(metrics, job_id, response.train_batch());
      break;
    case v1::StageResponse::kDataflow:
      if (response.dataflow().has_ended_step()) ExportStep(metrics, job_id, response.dataflow().ended_step());
      break;
    case v1::StageResponse::kInferBatch:
      metrics->Set(MetricId::kTrainValidationLoss, {job_id}, response.infer_batch().loss());
      break;
    case v1::StageResponse::kSaveCheckpoint:
      ExportCheckpoint(metrics, job_id, response.save_checkpoint());
      break;
    default:
      break;
  }
}

void ExportFailedStage(Metrics* metrics, const std::string& job_id, const v1::StageRequest& request) {
  if (request.has_train_batch()) metrics->Increment(MetricId::kTrainSteps, {job_id, "failed"});
  if (request.has_save_checkpoint()) metrics->Increment(MetricId::kCheckpoints, {job_id, "failed"});
}

void RemoveTrainMetrics(Metrics* metrics, const std::string& job_id) {
  for (const MetricDefinition& metric : MetricCatalogue()) {
    if (metric.labels == std::vector<std::string>{"job_id"}) metrics->Remove(metric.id, {job_id});
  }
  for (const char* result : kStepResults) metrics->Remove(MetricId::kTrainSteps, {job_id, result});
  for (const char* kind : kTokenKinds) metrics->Remove(MetricId::kTrainTokens, {job_id, kind});
  for (const char* phase : kPhases) metrics->Remove(MetricId::kPhaseSeconds, {job_id, phase});
  for (const char* result : kCheckpointResults) metrics->Remove(MetricId::kCheckpoints, {job_id, result});
}

}  // namespace sluice::worker
