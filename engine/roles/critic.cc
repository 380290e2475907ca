#include "engine/roles/critic.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/schedule_from_spec.h"
#include "common/failpoint.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/model/model_config.h"
#include "engine/roles/answer_update.h"
#include "engine/roles/job_options.h"
#include "engine/roles/memory_check.h"
#include "engine/roles/open_parameters.h"
#include "engine/roles/policy_options.h"

namespace sluice::engine {
namespace {

// What the policy has taken is gone already; the workspace is shared with it.
absl::Status CheckMemoryOfCritic(const v1::JobSpec& spec, const ModelConfig& config, kernels::Device device) {
  v1::JobSpec alone = spec;
  alone.mutable_algorithm()->set_use_kl_in_reward(false);
  alone.mutable_actor()->set_use_kl_loss(false);
  MemoryNeeds needs = NeedsOnCuda(alone, config, /*optimizer=*/true, {});
  needs.workspace = 0;
  return Annotate(CheckFreeMemory(needs, spec, device), "critic, beside the policy");
}

absl::StatusOr<ModelConfig> ConfigOf(const v1::JobSpec& spec) {
  if (!spec.critic().path().empty()) return LoadValueModelConfig(spec.critic().path());
  ASSIGN_OR_RETURN(const std::string overrides, OverrideJson(spec.model()));
  return LoadValueModelConfig(ConfigFolder(spec.model()), overrides);
}

// The policy's, unless the critic has a folder of its own.
v1::ModelSpec ModelOf(const v1::JobSpec& spec) {
  v1::ModelSpec model = spec.model();
  if (spec.critic().path().empty()) return model;
  model.set_path(spec.critic().path());
  model.set_init("pretrained");
  return model;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Critic>> Critic::Open(const v1::JobSpec& spec, kernels::Device device,
                                                     int64_t tokenizer_vocab_size, int64_t total_steps,
                                                     std::vector<std::string>& warnings) {
  const v1::CriticSpec& critic_spec = spec.critic();
  const char* const key = critic_spec.path().empty() ? "model.path" : "critic.path";
  // The rest of the job with the critic's optimizer.
  v1::JobSpec job = spec;
  *job.mutable_optim() = CriticOptim(spec);

  std::unique_ptr<Critic> critic(new Critic());
  critic->token_slots_ = spec.data().max_token_len_per_gpu();
  critic->ppo_epochs_ = critic_spec.has_ppo_epochs() ? critic_spec.ppo_epochs() : spec.actor().ppo_epochs();
  critic->mini_batch_size_ =
      critic_spec.has_ppo_mini_batch_size() ? critic_spec.ppo_mini_batch_size() : spec.actor().ppo_mini_batch_size();
  critic->loss_.cliprange_value = critic_spec.cliprange_value();
  const auto aggregation = ParseLossAggregation(critic_spec.loss_agg_mode());
  if (!aggregation.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("critic.loss_agg_mode: unknown value ", critic_spec.loss_agg_mode()));
  }
  critic->loss_.aggregation = *aggregation;
  critic->loss_scale_factor_ = LossScaleFactor(spec);
  ASSIGN_OR_RETURN(Schedule schedule, Schedule::Create(ScheduleFromSpec(job.optim()), total_steps));
  critic->schedule_ = std::make_unique<Schedule>(std::move(schedule));

  const absl::StatusOr<ModelConfig> config = ConfigOf(spec);
  RETURN_IF_ERROR(Annotate(config.status(), key));
  RETURN_IF_ERROR(Annotate(CheckVocabularySize(*config, tokenizer_vocab_size), key));
  if (device.is_cuda()) RETURN_IF_ERROR(CheckMemoryOfCritic(job, *config, device));
  ASSIGN_OR_RETURN(
      critic->parameters_,
      OpenParameters(ModelOf(spec), key, *config, ParametersOptionsOf(spec, device, /*gradients=*/true), warnings));
  ASSIGN_OR_RETURN(critic->model_, CausalLm::Create(critic->parameters_.get(), ModelOptions(spec)));
  ASSIGN_OR_RETURN(critic->optimizer_, AdamWOptimizer::Create(critic->parameters_.get(), OptimizerOptions(job)));
  return critic;
}

absl::Status Critic::FillValues(absl::Span<Answer> answers) {
  ASSIGN_OR_RETURN(const std::vector<PackedAnswers> micro_batches, PackAllAnswers(answers, token_slots_));
  for (const PackedAnswers& packed : micro_batches) {
    ASSIGN_OR_RETURN(const std::vector<float> values, model_->Values(packed.batch));
    FromSlots(values, packed, &Answer::value, answers);
  }
  return absl::OkStatus();
}

absl::StatusOr<CriticUpdate> Critic::UpdateOn(const std::vector<int32_t>& chosen, absl::Span<const Answer> answers,
                                              int64_t step, Communicator& communicator) {
  CriticUpdate update;
  ASSIGN_OR_RETURN(const BatchTotals totals, CountOverRanks(answers, chosen, loss_scale_factor_, communicator));
  update.empty = totals.sequences == 0;
  if (update.empty) return update;

  const auto backward = [&](const PackedAnswers& packed, GradientMode mode) -> absl::Status {
    const std::vector<float> old_value = BySlot(answers, packed, &Answer::value);
    const std::vector<float> returns = BySlot(answers, packed, &Answer::returns);
    const auto loss = [&](const std::vector<float>& values) -> absl::StatusOr<std::vector<float>> {
      std::vector<float> d_values(values.size());
      const ValueLossInputs inputs = {
          .batch = packed.tokens(), .value = values, .old_value = old_value, .returns = returns};
      ASSIGN_OR_RETURN(const ValueLossMetrics metrics, ValueLoss(loss_, inputs, totals, d_values));
      update.loss += metrics;
      return d_values;
    };
    RETURN_IF_ERROR(model_->ForwardBackward(packed.batch, loss, mode));
    Failpoint("engine.critic_micro_batch");
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(communicator.Agree(AccumulateGradients(answers, chosen, token_slots_, *parameters_, backward)));
  RETURN_IF_ERROR(communicator.AllReduceSum(parameters_->gradients()));
  RETURN_IF_ERROR(optimizer_->Step(schedule_->LearningRate(step), schedule_->WeightDecay(step)));
  ASSIGN_OR_RETURN(update.applied, optimizer_->Read());
  RETURN_IF_ERROR(communicator.device_status());
  return update;
}

}  // namespace sluice::engine
