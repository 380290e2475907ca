#include "common/metrics_catalogue.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

const std::vector<double>& RpcBuckets() {
  static const auto* const buckets =
      new std::vector<double>{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
  return *buckets;
}

// `first`, doubled until `last` is reached.
std::vector<double> Doubling(double first, double last) {
  std::vector<double> buckets;
  for (double bound = first; bound < last; bound *= 2) buckets.push_back(bound);
  buckets.push_back(last);
  return buckets;
}

std::vector<MetricDefinition> MakeCatalogue() {
  using enum MetricId;
  using enum MetricType;
  using enum MetricRole;
  const std::vector<double> step_buckets = Doubling(0.05, 1800);
  const std::vector<double> checkpoint_buckets = Doubling(1, 3600);
  return {
      {kBuildInfo,
       "sluice_build_info",
       kGauge,
       kBoth,
       {"version", "commit"},
       {},
       "Always 1; the labels say what the program was built from."},
      {kProcessResidentMemory,
       "process_resident_memory_bytes",
       kGauge,
       kBoth,
       {},
       {},
       "Resident memory of the process."},
      {kProcessOpenFds, "process_open_fds", kGauge, kBoth, {}, {}, "Open file descriptors of the process."},
      {kProcessStartTime,
       "process_start_time_seconds",
       kGauge,
       kBoth,
       {},
       {},
       "When the process started, in seconds since 1970."},
      {kLogMessages,
       "sluice_log_messages_total",
       kCounter,
       kBoth,
       {"level"},
       {},
       "Messages logged, by level (debug, info, warning, error), whether or not --log-level lets them through."},
      {kGrpcServerRequests,
       "sluice_grpc_server_requests_total",
       kCounter,
       kBoth,
       {"method", "code"},
       {},
       "Calls answered, by method and status code."},
      {kGrpcServerRequestDuration,
       "sluice_grpc_server_request_duration_seconds",
       kHistogram,
       kBoth,
       {"method"},
       RpcBuckets(),
       "Time from a call's arrival to its answer; streams are not in it."},
      {kJobs, "sluice_jobs", kGauge, kController, {"state"}, {}, "Jobs in the store, by state."},
      {kJobTransitions,
       "sluice_job_transitions_total",
       kCounter,
       kController,
       {"from", "to", "reason"},
       {},
       "State changes of jobs; reason is the failure's, or none."},
      {kJobQueueWait,
       "sluice_job_queue_wait_seconds",
       kHistogram,
       kController,
       {},
       Doubling(0.1, 86400),
       "Time that a job's attempt waited between being queued and being given its ranks."},
      {kJobOldestQueued,
       "sluice_job_oldest_queued_timestamp_seconds",
       kGauge,
       kController,
       {},
       {},
       "When the head of the queue was queued, in seconds since 1970; absent while nothing waits."},
      {kJobRestarts,
       "sluice_job_restarts_total",
       kCounter,
       kController,
       {"reason"},
       {},
       "Attempts that were lost and queued again, by reason."},
      {kWorkers, "sluice_workers", kGauge, kController, {"state"}, {}, "Workers, by state: ready, suspect or lost."},
      {kWorkerHeartbeats, "sluice_worker_heartbeats_total", kCounter, kController, {}, {}, "Heartbeats accepted."},
      {kWorkerLastHeartbeat,
       "sluice_worker_last_heartbeat_timestamp_seconds",
       kGauge,
       kController,
       {"worker"},
       {},
       "When a worker was last heard from, in seconds since 1970."},
      {kRankSlots,
       "sluice_rank_slots",
       kGauge,
       kController,
       {"state"},
       {},
       "Rank slots of ready workers: free or allocated."},
      {kSchedulerCycleDuration,
       "sluice_scheduler_cycle_duration_seconds",
       kHistogram,
       kController,
       {},
       RpcBuckets(),
       "Time of one pass over the queue."},
      {kSchedulerDecisions,
       "sluice_scheduler_decisions_total",
       kCounter,
       kController,
       {"result"},
       {},
       "Decisions on jobs: start, wait, or backoff (a restart that is not due yet)."},
      {kStageBytes,
       "sluice_stage_received_bytes_total",
       kCounter,
       kController,
       {"stage"},
       {},
       "Bytes of samples and weights that engines had from other pools for stages of a data flow."},
      {kStageDuration,
       "sluice_stage_duration_seconds",
       kHistogram,
       kController,
       {"stage"},
       step_buckets,
       "Time of a stage as the controller sees it, over all workers."},
      {kStageTokens,
       "sluice_stage_tokens_total",
       kCounter,
       kController,
       {"stage"},
       {},
       "Tokens of the answers that stages of a data flow read or made."},
      {kStageWait,
       "sluice_stage_wait_seconds",
       kHistogram,
       kController,
       {"stage"},
       step_buckets,
       "Time between the end of a stage's inputs and its beginning: its ranks were busy, or weights were awaited."},
      {kStoreCommitDuration,
       "sluice_store_commit_duration_seconds",
       kHistogram,
       kController,
       {},
       RpcBuckets(),
       "Time to make a change durable."},
      {kWatchStreams, "sluice_watch_streams", kGauge, kController, {}, {}, "Open WatchJob streams."},
      {kWatchCut,
       "sluice_watch_cut_total",
       kCounter,
       kController,
       {},
       {},
       "WatchJob streams that were ended because their reader was too slow."},
      {kTrainStep, "sluice_train_step", kGauge, kWorker, {"job_id"}, {}, "Optimizer steps done."},
      {kTrainLastStepTime,
       "sluice_train_last_step_timestamp_seconds",
       kGauge,
       kWorker,
       {"job_id"},
       {},
       "When the last step ended, in seconds since 1970; removed when the job ends."},
      {kTrainSteps,
       "sluice_train_steps_total",
       kCounter,
       kWorker,
       {"job_id", "result"},
       {},
       "Optimizer steps: applied, skipped_nonfinite or failed."},
      {kTrainTokens,
       "sluice_train_tokens_total",
       kCounter,
       kWorker,
       {"job_id", "kind"},
       {},
       "Token slots computed: scored, context (read but not scored) or padding."},
      {kTrainSamples, "sluice_train_samples_total", kCounter, kWorker, {"job_id"}, {}, "Rows trained on."},
      {kTrainFlops,
       "sluice_train_flops_total",
       kCounter,
       kWorker,
       {"job_id"},
       {},
       "Model FLOPs of the steps done; utilisation is its rate over the hardware's peak."},
      {kTrainLoss,
       "sluice_train_loss",
       kGauge,
       kWorker,
       {"job_id"},
       {},
       "Mean negative log-likelihood per scored token of the last step, in nats."},
      {kTrainValidationLoss,
       "sluice_train_validation_loss",
       kGauge,
       kWorker,
       {"job_id"},
       {},
       "Mean negative log-likelihood per scored token of the last validation, in nats."},
      {kTrainGradNorm,
       "sluice_train_grad_norm",
       kGauge,
       kWorker,
       {"job_id"},
       {},
       "Global gradient norm of the last step, before clipping."},
      {kTrainLearningRate,
       "sluice_train_learning_rate",
       kGauge,
       kWorker,
       {"job_id"},
       {},
       "Learning rate that the last step applied."},
      {kNonfinite,
       "sluice_nonfinite_total",
       kCounter,
       kWorker,
       {"job_id"},
       {},
       "Steps skipped because the loss or the gradient was not finite."},
      {kStepDuration,
       "sluice_step_duration_seconds",
       kHistogram,
       kWorker,
       {"job_id"},
       step_buckets,
       "Wall-clock time of an optimizer step."},
      {kPhaseSeconds,
       "sluice_phase_seconds_total",
       kCounter,
       kWorker,
       {"job_id", "phase"},
       {},
       "Time of the steps by phase: data, forward_backward, communication, optimizer."},
      {kCheckpoints,
       "sluice_checkpoints_total",
       kCounter,
       kWorker,
       {"job_id", "result"},
       {},
       "Checkpoints: committed or failed."},
      {kCheckpointDuration,
       "sluice_checkpoint_duration_seconds",
       kHistogram,
       kWorker,
       {"job_id"},
       checkpoint_buckets,
       "Time to write and commit a checkpoint."},
      {kCheckpointBytes,
       "sluice_checkpoint_bytes",
       kGauge,
       kWorker,
       {"job_id"},
       {},
       "Size of the last committed checkpoint."},
      {kCheckpointLastStep,
       "sluice_checkpoint_last_step",
       kGauge,
       kWorker,
       {"job_id"},
       {},
       "Step of the last committed checkpoint."},
      {kCheckpointLastSuccess,
       "sluice_checkpoint_last_success_timestamp_seconds",
       kGauge,
       kWorker,
       {"job_id"},
       {},
       "When the last checkpoint was committed, in seconds since 1970."},
      {kEngines, "sluice_engines", kGauge, kWorker, {}, {}, "Engine processes that run on this worker."},
      {kEngineExits,
       "sluice_engine_exits_total",
       kCounter,
       kWorker,
       {"reason"},
       {},
       "Engine processes that ended: asked, killed or the failure's reason."},
      {kHeartbeatRoundTrip,
       "sluice_heartbeat_round_trip_seconds",
       kHistogram,
       kWorker,
       {},
       RpcBuckets(),
       "Time from sending a heartbeat to the controller's answer."},
  };
}

const char* TypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

void AppendSection(MetricRole role, const char* title, std::string* page) {
  absl::StrAppend(page, "\n## ", title, "\n\n| name | type | labels | meaning |\n|---|---|---|---|\n");
  for (const MetricDefinition& metric : MetricCatalogue()) {
    if (metric.role != role) continue;
    absl::StrAppend(page, "| `", metric.name, "` | ", TypeName(metric.type), " | ", absl::StrJoin(metric.labels, ", "),
                    " | ", metric.help, " |\n");
  }
}

}  // namespace

const std::vector<MetricDefinition>& MetricCatalogue() {
  static const auto* const catalogue = new std::vector<MetricDefinition>(MakeCatalogue());
  return *catalogue;
}

const MetricDefinition& DefinitionOf(MetricId id) { return MetricCatalogue()[static_cast<size_t>(id)]; }

std::string MetricsPage() {
  std::string page =
      "# Metrics\n\n"
      "Generated from common/metrics_catalogue.cc; a test keeps the two equal. Controller and worker serve these at\n"
      "`/metrics` in the Prometheus text format where they are given a metrics address.\n";
  AppendSection(MetricRole::kBoth, "Controller and worker", &page);
  AppendSection(MetricRole::kController, "Controller", &page);
  AppendSection(MetricRole::kWorker, "Worker", &page);
  return page;
}

}  // namespace sluice
