// A reward model as a reward (kind `model`): the number that its head gives an answer at its last token.
//
// It sees the tokens of the prompt and the answer as they were generated, so that it must have the policy's tokens.
// That is what recipe reward_model learns on: the value at the end mark of the answer, whatever the chat template
// writes behind it. An answer that ended at the length limit is judged at its last token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/model/causal_lm.h"
#include "engine/model/model_config.h"
#include "engine/model/parameters.h"
#include "engine/reward/reward.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/device.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

// Thread-safe; calls wait for each other.
class RewardModel : public Reward {
 public:
  // Looks at the folder; its weights are read by Load. A folder without a tokenizer.json is taken to have the policy's.
  // NotFound: no such folder. InvalidArgument, naming the folder: no `score.weight` of one label, other tokens than
  // `policy`, an architecture that is not supported.
  static absl::StatusOr<std::unique_ptr<RewardModel>> Open(const std::string& path, const Tokenizer& policy);

  // Reads the weights to the device, without gradients, in the storage type and micro-batches of the job.
  // ResourceExhausted: the device has no memory for it.
  absl::Status Load(const v1::JobSpec& spec, kernels::Device device);

  // Errors of a request: kBadValue where the number is not finite. FailedPrecondition: before Load.
  // InvalidArgument: a request without tokens.
  absl::StatusOr<std::vector<RewardResult>> Score(absl::Span<const RewardRequest> requests) override;

  // Model FLOPs of the calls of Score since the last call of this.
  double TakeFlops();

 private:
  RewardModel(ModelFolder folder, ModelConfig config) : folder_(std::move(folder)), config_(std::move(config)) {}

  const ModelFolder folder_;
  const ModelConfig config_;
  absl::Mutex mutex_;
  int64_t token_slots_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Parameters> parameters_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<CausalLm> model_ ABSL_GUARDED_BY(mutex_);  // null before Load
  double flops_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sluice::engine
