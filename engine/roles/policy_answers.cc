// PolicyRole: from prompts to answers, dealt to the ranks.

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/readable.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/device/device_memory.h"
#include "engine/roles/answer_balance.h"
#include "engine/roles/policy_role.h"

namespace sluice::engine {
namespace {

// The most likely answers of remax draw from no stream of the answers that are learned.
constexpr uint64_t kBaselineStreams = uint64_t{1} << 61;

}  // namespace

absl::Status PolicyRole::OpenRollout() {
  if (rollout_ != nullptr) return absl::OkStatus();
  std::optional<int64_t> free_bytes;
  if (device_.is_cuda()) {
    ASSIGN_OR_RETURN(free_bytes, FreeDeviceBytes(device_));
  }
  const RolloutOptions options = RolloutOptionsOf(spec_, *parameters_, free_bytes);
  LoggerFor("engine").Info(absl::StrCat("room for ", options.cache_tokens,
                                        " tokens of keys and values, with activations ",
                                        FormatBytes(RolloutEngine::BytesFor(*parameters_, options))));
  ASSIGN_OR_RETURN(rollout_, RolloutEngine::Create(parameters_.get(), &encoder_->tokenizer(), options));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Answer>> PolicyRole::GenerateAnswers(const GenerateOrder& order) {
  std::vector<Answer> answers;
  std::vector<RolloutRequest> requests;
  const auto world = static_cast<size_t>(communicator_->world_size());
  for (size_t place = static_cast<size_t>(communicator_->rank()); place < order.rows.size(); place += world) {
    for (int64_t i = 0; i < order.n; ++i) {
      Answer& answer = answers.emplace_back();
      answer.place = static_cast<int64_t>(place);
      answer.row = order.rows[place];
      answer.sample = static_cast<uint64_t>(answer.place * order.n + i);
      answer.prompt_ids = &order.prompts->prompt(answer.row).ids;
      requests.push_back({.id = static_cast<int64_t>(order.first_sample + answer.sample),
                          .prompt_ids = *answer.prompt_ids,
                          .sampling = order.sampling,
                          .generated = {}});
    }
  }
  // Room for keys and values is only there while answers are generated: the switch between training and generation is
  // to take it and to give it back.
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(OpenRollout());
  const bool of_free_memory = device_.is_cuda() && spec_.rollout().kv_cache_tokens() == 0;
  RETURN_IF_ERROR(Annotate(rollout_->AllocateCache(), of_free_memory
                                                          ? "rollout.gpu_memory_utilization asks for too much"
                                                          : "rollout.kv_cache_tokens asks for too much"));
  rollout_->set_weight_version(steps_done_);
  const absl::Time allocated = absl::Now();
  auto samples = rollout_->Generate(std::move(requests));
  const absl::Time generated = absl::Now();
  rollout_->FreeCache();
  if (order.metrics != nullptr) {
    order.metrics->AddMax(absl::StrCat(kSecondsOf, "switch"),
                          absl::ToDoubleSeconds((allocated - start) + (absl::Now() - generated)));
  }
  RETURN_IF_ERROR(samples.status());
  if (weights_ != nullptr) RETURN_IF_ERROR(weights_->device_status());
  for (size_t i = 0; i < answers.size(); ++i) {
    RolloutSample& sample = (*samples)[i];
    answers[i].response_ids = std::move(sample.token_ids);
    answers[i].rollout_log_prob = std::move(sample.log_probs);
    answers[i].text = std::move(sample.text);
    answers[i].truncated = sample.finish_reason == FinishReason::kLength;
    answers[i].weight_version = sample.weight_version;
  }
  return answers;
}

absl::StatusOr<PolicyRole::Generated> PolicyRole::GenerateBatch(Step* step) {
  const int64_t batch = step->step - 1 + further_batches_ + step->batches++;
  Generated generated;
  ASSIGN_OR_RETURN(generated.prompts, train_->PromptsForStep(batch));
  const int64_t n = spec_.rollout().n();
  const auto first_sample = static_cast<uint64_t>(batch * spec_.data().train_batch_size() * n);
  const absl::Status local = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(generated.answers, GenerateAnswers({.prompts = train_.get(),
                                                         .rows = generated.prompts.rows,
                                                         .sampling = policy_.sampling,
                                                         .n = n,
                                                         .first_sample = first_sample,
                                                         .metrics = &step->metrics}));
    if (!InfoOf(policy_.advantage.estimator).needs_baseline) return absl::OkStatus();
    SamplingParams greedy = policy_.sampling;
    greedy.temperature = 0;
    ASSIGN_OR_RETURN(generated.baselines, GenerateAnswers({.prompts = train_.get(),
                                                           .rows = generated.prompts.rows,
                                                           .sampling = greedy,
                                                           .n = 1,
                                                           .first_sample = kBaselineStreams,
                                                           .metrics = &step->metrics}));
    return absl::OkStatus();
  }();
  RETURN_IF_ERROR(communicator_->Agree(local));
  // A forward of every token. What answers to one prompt share, and what is computed again after a preemption, is not
  // told apart: these are the FLOPs of the model, not of the machine.
  const ModelConfig& config = parameters_->config();
  step->flops += (AnswerFlops(config, generated.answers) + AnswerFlops(config, generated.baselines)) / 3;
  for (const Answer& answer : generated.answers) {
    step->metrics.AddSpread("response_length", static_cast<double>(answer.response_tokens()));
    step->metrics.AddMean("response_length/clip_ratio", answer.truncated ? 1 : 0);
    step->metrics.AddSpread("prompt_length", static_cast<double>(answer.prompt_ids->size()));
  }
  return generated;
}

absl::Status PolicyRole::GenerateStage(Step* step) {
  ASSIGN_OR_RETURN(Generated generated, GenerateBatch(step));
  step->prompts = std::move(generated.prompts);
  step->answers = std::move(generated.answers);
  step->baselines = std::move(generated.baselines);
  // Which answers are trained on is not known before they are filtered.
  return policy_.filter_metric.empty() && pool_.actor ? BalanceStep(step) : absl::OkStatus();
}

absl::Status PolicyRole::BalanceStep(Step* step) {
  const AdvantageEstimatorInfo& estimator = InfoOf(policy_.advantage.estimator);
  const std::vector<int64_t> mini_batch_of_place =
      MiniBatchOfPlaces(*step, /*pass=*/0, spec_.actor().ppo_mini_batch_size());
  // What other pools make of a prompt's answers is fetched by its place: they stay together.
  const bool pools = world_ != communicator_;
  step->dealt_anew = spec_.trainer().balance_batch();
  return BalanceAnswers({.move = step->dealt_anew,
                         .keep_groups = estimator.needs_groups || estimator.needs_baseline || pools,
                         .mini_batch_of_place = mini_batch_of_place,
                         .model = &parameters_->config()},
                        *train_, &step->answers, &step->baselines, *communicator_, &step->metrics);
}

}  // namespace sluice::engine
