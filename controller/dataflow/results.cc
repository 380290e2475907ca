#include "controller/dataflow/results.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::controller {
namespace {

// Weight of the newest step in the running mean: half of the mean's weight lies on the last 7 steps.
constexpr double kNewestWeight = 0.1;

void TakeLargest(const v1::StepMetrics& other, v1::StepMetrics* step) {
  step->set_seconds(std::max(step->seconds(), other.seconds()));
  step->set_micro_batches(std::max(step->micro_batches(), other.micro_batches()));
  step->set_peak_host_bytes(std::max(step->peak_host_bytes(), other.peak_host_bytes()));
  step->set_peak_device_bytes(std::max(step->peak_device_bytes(), other.peak_device_bytes()));
  for (const auto& [phase, seconds] : other.phase_seconds()) {
    double& largest = (*step->mutable_phase_seconds())[phase];
    largest = std::max(largest, seconds);
  }
}

void CombineWarnings(const std::vector<const v1::StageResponse*>& answers, const std::vector<int32_t>& ranks,
                     v1::StageResponse* combined) {
  combined->clear_warnings();
  std::set<std::string> seen;
  for (size_t i = 0; i < answers.size(); ++i) {
    for (const std::string& warning : answers[i]->warnings()) {
      if (!seen.insert(warning).second) continue;
      combined->add_warnings(ranks.size() == 1 ? warning : absl::StrCat("rank ", ranks[i], ": ", warning));
    }
  }
}

}  // namespace

std::vector<int32_t> AllRanks(int32_t world_size) {
  std::vector<int32_t> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

absl::StatusOr<v1::StageResponse> Combine(const std::vector<v1::RankStageResponse>& answers,
                                          const std::vector<int32_t>& ranks) {
  std::vector<const v1::StageResponse*> by_rank;
  for (const int32_t rank : ranks) {
    const auto answer =
        std::find_if(answers.begin(), answers.end(), [rank](const auto& other) { return other.rank() == rank; });
    if (answer == answers.end()) return absl::InternalError(absl::StrCat("rank ", rank, " gave no answer"));
    by_rank.push_back(&answer->response());
    if (by_rank.back()->result_case() != by_rank[0]->result_case()) {
      return absl::InternalError(absl::StrCat("rank ", rank, " answered another stage than rank ", ranks[0]));
    }
  }
  v1::StageResponse combined = *by_rank[0];
  CombineWarnings(by_rank, ranks, &combined);
  for (const v1::StageResponse* other : by_rank) {
    if (combined.has_train_batch()) TakeLargest(other->train_batch(), combined.mutable_train_batch());
    if (combined.has_dataflow()) {
      v1::DataflowResult* dataflow = combined.mutable_dataflow();
      if (other != by_rank[0]) {
        dataflow->mutable_outputs()->MergeFrom(other->dataflow().outputs());
        dataflow->set_received_bytes(dataflow->received_bytes() + other->dataflow().received_bytes());
      }
      dataflow->set_seconds(std::max(dataflow->seconds(), other->dataflow().seconds()));
      if (dataflow->has_ended_step()) TakeLargest(other->dataflow().ended_step(), dataflow->mutable_ended_step());
    }
    if (combined.has_infer_batch()) {
      combined.mutable_infer_batch()->set_seconds(
          std::max(combined.infer_batch().seconds(), other->infer_batch().seconds()));
    }
  }
  return combined;
}

void EtaEstimator::OnStep(absl::Time now, int64_t step, int64_t total_steps) {
  if (last_.has_value()) {
    const double elapsed_s = absl::ToDoubleSeconds(now - *last_);
    mean_step_s_ = mean_step_s_.has_value() ? *mean_step_s_ + kNewestWeight * (elapsed_s - *mean_step_s_) : elapsed_s;
    seconds_ = *mean_step_s_ * static_cast<double>(std::max<int64_t>(0, total_steps - step));
  }
  last_ = now;
}

std::string DescribeStep(const v1::StepMetrics& step, int64_t total_steps) {
  std::string text = absl::StrFormat("step %d of %d, loss %.4f, grad norm %.4g, lr %.3g", step.step(), total_steps,
                                     step.loss(), step.grad_norm(), step.lr());
  if (const auto score = step.metrics().find("critic/score/mean"); score != step.metrics().end())
    absl::StrAppendFormat(&text, ", score %.4f", score->second);
  if (step.seconds() > 0)
    absl::StrAppendFormat(&text, ", %.0f tokens/s", static_cast<double>(step.tokens()) / step.seconds());
  if (step.skipped_nonfinite()) text += ", skipped: not finite";
  return text;
}

}  // namespace sluice::controller
