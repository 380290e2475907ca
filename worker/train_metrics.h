// From the answers of stages to the training metrics that this worker exports.
#pragma once

#include <string>

#include "common/metrics.h"
#include "sluice/v1/engine.pb.h"

namespace sluice::worker {

// Updates the job's series from rank 0's answer to a stage.
void ExportTrainMetrics(Metrics* metrics, const std::string& job_id, const v1::StageResponse& response);

// Counts a stage that failed.
void ExportFailedStage(Metrics* metrics, const std::string& job_id, const v1::StageRequest& request);

// Ends all series of a job.
void RemoveTrainMetrics(Metrics* metrics, const std::string& job_id);

}  // namespace sluice::worker
