// From the ranks' answers to what users see. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sluice/v1/engine.pb.h"
#include "sluice/v1/types.pb.h"
#include "sluice/v1/worker.pb.h"

namespace sluice::controller {

// One answer for all ranks that were asked: the first's, with times, memory and micro-batches as the largest of any
// rank, bytes as their sum, and references to the batches and the warnings of all of them: each warning once, with the
// first rank that has it before it where several were asked. Internal: an answer is missing, or ranks answered with
// different kinds.
absl::StatusOr<v1::StageResponse> Combine(const std::vector<v1::RankStageResponse>& answers,
                                          const std::vector<int32_t>& ranks);

// 0 to world_size - 1.
std::vector<int32_t> AllRanks(int32_t world_size);

// Estimates the time to the end from the time between finished steps, so that validation and checkpoints are in it.
class EtaEstimator {
 public:
  // REQUIRES: times do not go back.
  void OnStep(absl::Time now, int64_t step, int64_t total_steps);

  // Seconds to the end; nothing before the second step.
  std::optional<double> seconds() const { return seconds_; }

 private:
  std::optional<absl::Time> last_;
  std::optional<double> mean_step_s_;
  std::optional<double> seconds_;
};

// "step 12 of 300, loss 1.234, lr 1e-05, 5120 tokens/s".
std::string DescribeStep(const v1::StepMetrics& step, int64_t total_steps);

}  // namespace sluice::controller
