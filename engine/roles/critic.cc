#include "engine/roles/critic.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/schedule_from_spec.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/model/load_parameters.h"
#include "engine/model/model_config.h"
#include "engine/roles/job_options.h"
#include "engine/roles/memory_check.h"
#include "engine/roles/policy_options.h"

namespace sluice::engine {
namespace {

// What the policy has taken is gone already; the workspace is shared with it.
absl::Status CheckMemoryOfCritic(const v1::JobSpec& spec, const ModelConfig& config) {
  v1::JobSpec alone = spec;
  alone.mutable_algorithm()->set_use_kl_in_reward(false);
  alone.mutable_actor()->set_use_kl_loss(false);
  MemoryNeeds needs = NeedsOnCuda(alone, config, /*optimizer=*/true, {});
  needs.workspace = 0;
  return Annotate(CheckFreeMemory(needs, spec), "critic, beside the policy");
}

absl::StatusOr<ModelConfig> ConfigOf(const v1::JobSpec& spec) {
  if (!spec.critic().path().empty()) return LoadValueModelConfig(spec.critic().path());
  ASSIGN_OR_RETURN(const std::string overrides, OverrideJson(spec.model()));
  return LoadValueModelConfig(ConfigFolder(spec.model()), overrides);
}

absl::StatusOr<std::unique_ptr<Parameters>> ParametersOf(const v1::JobSpec& spec, const ModelConfig& config,
                                                         kernels::Device device, std::vector<std::string>& warnings) {
  ParametersOptions options;
  options.dtype = DTypeOf(spec.engine());
  options.device = device;
  options.seed = static_cast<uint64_t>(spec.trainer().seed());
  const bool own = !spec.critic().path().empty();
  if (!own && spec.model().init() == "random") return Parameters::CreateRandom(config, options, options.seed);
  ASSIGN_OR_RETURN(const ModelFolder folder,
                   ModelFolder::Open(PosixFileSystem(), own ? spec.critic().path() : spec.model().path()));
  return LoadParameters(config, options, folder, warnings);
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
  if (device.is_cuda()) RETURN_IF_ERROR(CheckMemoryOfCritic(job, *config));
  auto parameters = ParametersOf(spec, *config, device, warnings);
  RETURN_IF_ERROR(Annotate(parameters.status(), key));
  critic->parameters_ = *std::move(parameters);
  ASSIGN_OR_RETURN(critic->model_, CausalLm::Create(critic->parameters_.get(), ModelOptions(spec)));
  ASSIGN_OR_RETURN(critic->optimizer_, AdamWOptimizer::Create(critic->parameters_.get(), OptimizerOptions(job)));
  return critic;
}

absl::Status Critic::FillValues(absl::Span<Answer> answers) {
  std::vector<int32_t> all(answers.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  ASSIGN_OR_RETURN(const std::vector<PackedAnswers> micro_batches, PackAnswers(answers, all, token_slots_));
  for (const PackedAnswers& packed : micro_batches) {
    ASSIGN_OR_RETURN(const std::vector<float> values, model_->Values(packed.batch));
    FromSlots(values, packed, &Answer::value, answers);
  }
  return absl::OkStatus();
}

absl::StatusOr<CriticUpdate> Critic::UpdateOn(const std::vector<int32_t>& chosen, absl::Span<const Answer> answers,
                                              int64_t step, Communicator& communicator) {
  CriticUpdate update;
  std::vector<double> counts = {0, static_cast<double>(chosen.size())};
  for (const int32_t place : chosen) counts[0] += static_cast<double>(answers[place].response_tokens());
  RETURN_IF_ERROR(communicator.AllReduceSum(absl::MakeSpan(counts)));
  update.empty = counts[1] == 0;
  if (update.empty) return update;
  const BatchTotals totals = {static_cast<int64_t>(counts[0]), static_cast<int64_t>(counts[1]), loss_scale_factor_};

  const absl::Status local = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::vector<PackedAnswers> micro_batches, PackAnswers(answers, chosen, token_slots_));
    if (micro_batches.empty()) return parameters_->ZeroGradients();
    GradientMode mode = GradientMode::kOverwrite;
    for (const PackedAnswers& packed : micro_batches) {
      const std::vector<float> old_value = BySlot(answers, packed, &Answer::value);
      const std::vector<float> returns = BySlot(answers, packed, &Answer::returns);
      const auto loss = [&](const std::vector<float>& values) -> absl::StatusOr<std::vector<float>> {
        std::vector<float> d_values(values.size());
        const ValueLossInputs inputs = {.batch = {packed.sequences, static_cast<int64_t>(values.size()), {}},
                                        .value = values,
                                        .old_value = old_value,
                                        .returns = returns};
        ASSIGN_OR_RETURN(const ValueLossMetrics metrics, ValueLoss(loss_, inputs, totals, d_values));
        update.loss += metrics;
        return d_values;
      };
      RETURN_IF_ERROR(model_->ForwardBackward(packed.batch, loss, mode));
      mode = GradientMode::kAccumulate;
      Failpoint("engine.critic_micro_batch");
    }
    return absl::OkStatus();
  }();
  RETURN_IF_ERROR(communicator.Agree(local));
  RETURN_IF_ERROR(communicator.AllReduceSum(parameters_->gradients()));
  RETURN_IF_ERROR(optimizer_->Step(schedule_->LearningRate(step), schedule_->WeightDecay(step)));
  ASSIGN_OR_RETURN(update.applied, optimizer_->Read());
  return update;
}

}  // namespace sluice::engine
