// The one table of every metric: name, type, labels, buckets, meaning. Registration, docs/metrics.md and the tests come
// from it. To add a metric, add an id here and a row in metrics_catalogue.cc, and run the test with
// SLUICE_UPDATE_GOLDENS=1.
#pragma once

#include <string>
#include <vector>

namespace sluice {

enum class MetricId {
  kBuildInfo,
  kProcessResidentMemory,
  kProcessOpenFds,
  kProcessStartTime,
  kLogMessages,
  kGrpcServerRequests,
  kGrpcServerRequestDuration,
  // Controller.
  kJobs,
  kJobTransitions,
  kJobQueueWait,
  kJobOldestQueued,
  kJobRestarts,
  kWorkers,
  kWorkerHeartbeats,
  kWorkerLastHeartbeat,
  kRankSlots,
  kSchedulerCycleDuration,
  kSchedulerDecisions,
  kStageBytes,
  kStageDuration,
  kStageTokens,
  kStageWait,
  kStoreCommitDuration,
  kWatchStreams,
  kWatchCut,
  // Worker.
  kTrainStep,
  kTrainLastStepTime,
  kTrainSteps,
  kTrainTokens,
  kTrainSamples,
  kTrainFlops,
  kTrainLoss,
  kTrainValidationLoss,
  kTrainGradNorm,
  kTrainLearningRate,
  kNonfinite,
  kStepDuration,
  kPhaseSeconds,
  kCheckpoints,
  kCheckpointDuration,
  kCheckpointBytes,
  kCheckpointLastStep,
  kCheckpointLastSuccess,
  kEngines,
  kEngineExits,
  kHeartbeatRoundTrip,
};

enum class MetricType { kCounter, kGauge, kHistogram };

// Which programs export a metric.
enum class MetricRole { kBoth, kController, kWorker };

struct MetricDefinition {
  MetricId id;
  const char* name;  // with the prefix sluice_, except for the process_ names that Prometheus defines
  MetricType type;
  MetricRole role;
  std::vector<std::string> labels;
  std::vector<double> buckets;  // histograms only: upper bounds, rising
  const char* help;
};

// By MetricId: the definition of `id` is at index `id`.
const std::vector<MetricDefinition>& MetricCatalogue();

const MetricDefinition& DefinitionOf(MetricId id);

// docs/metrics.md, whole.
std::string MetricsPage();

}  // namespace sluice
