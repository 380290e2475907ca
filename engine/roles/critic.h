// The critic of PPO: a model with a value head that is trained beside the policy, on the same device.
//
// The value of a response token is what the critic expects of the answer in the state before that token: the number in
// the slot that predicts it. Its loss is engine/loss/value_loss.h, against the returns of the advantage estimator.
// Not thread-safe: one engine thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/schedule/lr_schedule.h"
#include "engine/comm/communicator.h"
#include "engine/loss/value_loss.h"
#include "engine/model/causal_lm.h"
#include "engine/model/parameters.h"
#include "engine/optim/adamw_optimizer.h"
#include "engine/roles/answer_batch.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

struct CriticUpdate {
  ValueLossMetrics loss;  // of this rank's part
  bool empty = false;     // no answer of any rank
  OptimizerStepResult applied;
};

class Critic {
 public:
  // critic.path's model, or the policy's as the run begins; a head that is not there is drawn from trainer.seed and
  // told in `warnings`. On this rank alone.
  // InvalidArgument, naming the key: no such model, or one with fewer tokens than the tokenizer.
  // ResourceExhausted: the device has no memory for it.
  static absl::StatusOr<std::unique_ptr<Critic>> Open(const v1::JobSpec& spec, kernels::Device device,
                                                      int64_t tokenizer_vocab_size, int64_t total_steps,
                                                      std::vector<std::string>& warnings);

  Critic(const Critic&) = delete;
  Critic& operator=(const Critic&) = delete;

  // Answer::value of all answers. No collective.
  absl::Status FillValues(absl::Span<Answer> answers);

  // One optimizer update of step `step` (from 1) on answers[chosen], from their value and returns. Collective; an error
  // of any rank's part is every rank's error.
  absl::StatusOr<CriticUpdate> UpdateOn(const std::vector<int32_t>& chosen, absl::Span<const Answer> answers,
                                        int64_t step, Communicator& communicator);

  int64_t ppo_epochs() const { return ppo_epochs_; }
  int64_t mini_batch_size() const { return mini_batch_size_; }  // prompts
  double LearningRate(int64_t step) const { return schedule_->LearningRate(step); }

  // For checkpoints, export and moves.
  Parameters* parameters() { return parameters_.get(); }
  CausalLm* model() { return model_.get(); }
  AdamWOptimizer* optimizer() { return optimizer_.get(); }

 private:
  Critic() = default;

  int64_t token_slots_ = 0;
  int64_t ppo_epochs_ = 1;
  int64_t mini_batch_size_ = 1;
  ValueLossOptions loss_;
  double loss_scale_factor_ = 0;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<CausalLm> model_;
  std::unique_ptr<AdamWOptimizer> optimizer_;
  std::unique_ptr<Schedule> schedule_;
};

}  // namespace sluice::engine
