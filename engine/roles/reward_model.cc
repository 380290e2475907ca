#include "engine/roles/reward_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/batch_plan.h"
#include "engine/model/flops.h"
#include "engine/model/load_parameters.h"
#include "engine/roles/job_options.h"
#include "engine/roles/memory_check.h"
#include "engine/roles/open_parameters.h"
#include "engine/roles/same_tokens.h"

namespace sluice::engine {
namespace {

constexpr char kHead[] = "score.weight";

// What is there already is gone; the workspace is shared.
absl::Status CheckMemoryOf(const v1::JobSpec& spec, const ModelConfig& config, kernels::Device device) {
  v1::JobSpec alone = spec;
  alone.set_recipe("sft");  // no reference model and no critic
  alone.mutable_engine()->set_forward_only(true);
  MemoryNeeds needs = NeedsOnCuda(alone, config, /*optimizer=*/false, {});
  needs.workspace = 0;
  return CheckFreeMemory(needs, spec, device);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RewardModel>> RewardModel::Open(const std::string& path, const Tokenizer& policy) {
  ASSIGN_OR_RETURN(ModelFolder folder, ModelFolder::Open(PosixFileSystem(), path));
  if (!folder.Contains(kHead)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has no ", kHead, ": it is no reward model (recipe reward_model trains one)"));
  }
  auto config = ParseValueModelConfig(folder.config_json());
  RETURN_IF_ERROR(Annotate(config.status(), path));
  RETURN_IF_ERROR(CheckSameTokens(path, *config, policy));
  return std::unique_ptr<RewardModel>(new RewardModel(std::move(folder), *std::move(config)));
}

absl::Status RewardModel::Load(const v1::JobSpec& spec, kernels::Device device) {
  if (device.is_cuda()) RETURN_IF_ERROR(CheckMemoryOf(spec, config_, device));
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> warnings;  // of names that the model does not have; the folder has its head
  ASSIGN_OR_RETURN(parameters_,
                   LoadParameters(config_, ParametersOptionsOf(spec, device, /*gradients=*/false), folder_, warnings));
  CausalLmOptions options = ModelOptions(spec);
  options.backward = false;
  ASSIGN_OR_RETURN(model_, CausalLm::Create(parameters_.get(), options));
  token_slots_ = options.token_slots;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RewardResult>> RewardModel::Score(absl::Span<const RewardRequest> requests) {
  std::vector<RewardResult> results(requests.size());
  if (requests.empty()) return results;
  absl::MutexLock lock(&mutex_);
  if (model_ == nullptr) return absl::FailedPreconditionError("the reward model is not loaded");
  std::vector<std::vector<int32_t>> ids;
  std::vector<int64_t> lengths;
  for (const RewardRequest& request : requests) {
    if (request.response_ids.empty()) return absl::InvalidArgumentError("an answer came without its tokens");
    std::vector<int32_t>& both = ids.emplace_back(request.prompt_ids.begin(), request.prompt_ids.end());
    both.insert(both.end(), request.response_ids.begin(), request.response_ids.end());
    lengths.push_back(static_cast<int64_t>(both.size()));
  }
  ASSIGN_OR_RETURN(const BatchPlan plan, PlanBatch(lengths, {.world_size = 1, .max_tokens = token_slots_}));
  const std::vector<uint8_t> mask(static_cast<size_t>(*std::max_element(lengths.begin(), lengths.end())), 0);
  for (const std::vector<int32_t>& micro_batch : plan.ranks[0]) {
    std::vector<TokenSpan> spans;
    for (const int32_t place : micro_batch) {
      spans.push_back(
          {ids[static_cast<size_t>(place)].data(), mask.data(), lengths[static_cast<size_t>(place)], place});
    }
    const MicroBatch batch = PackMicroBatch(spans, token_slots_);
    ASSIGN_OR_RETURN(const std::vector<float> values, model_->Values(batch));
    for (size_t i = 0; i < micro_batch.size(); ++i) {
      const double value = values[static_cast<size_t>(batch.cu_seqlens[i + 1] - 1)];
      results[static_cast<size_t>(micro_batch[i])] =
          std::isfinite(value)
              ? RewardResult::Scored(value)
              : RewardResult::Failed(RewardError::kBadValue, "the reward model's number is not finite");
    }
  }
  flops_ += TrainingFlops(config_, lengths) / 3;
  return results;
}

double RewardModel::TakeFlops() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(flops_, 0.0);
}

}  // namespace sluice::engine
