// PolicyRole: what it opens, the order of stages, validation.
#include "engine/roles/policy_role.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/config/dataflow.h"
#include "common/config/rewards_from_spec.h"
#include "common/failpoint.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/roles/evaluation.h"
#include "engine/roles/job_options.h"
#include "engine/roles/reference_model.h"
#include "engine/roles/reward_model.h"

namespace sluice::engine {
namespace {

constexpr char kKlCoefficient[] = "kl_coef";
constexpr char kPromptBatches[] = "prompt_batches";
// Validation draws from streams of its own, the same each time: its scores differ by the weights alone.
constexpr uint64_t kValidationStreams = uint64_t{1} << 62;

}  // namespace

absl::Status PolicyRole::OpenData() {
  ASSIGN_OR_RETURN(policy_, PolicyOptionsOf(spec_));
  kl_controller_ = InitialKlControllerState(policy_.kl_controller);
  ASSIGN_OR_RETURN(const PromptDatasetOptions train, TrainPromptOptions(spec_));
  ASSIGN_OR_RETURN(train_, PromptDataset::Open(train, *encoder_));
  if (!spec_.data().val_files().empty()) {
    ASSIGN_OR_RETURN(const PromptDatasetOptions validation, ValidationPromptOptions(spec_));
    ASSIGN_OR_RETURN(validation_, PromptDataset::Open(validation, *encoder_));
  }
  judged_ = JudgesAnswers(spec_);
  has_logprob_ = HasStage(spec_, "logprob");
  return OpenScorers();
}

ModelRole::TrainingData PolicyRole::training_data() const {
  if (train_ == nullptr) return {};
  return {train_->rows(), train_->steps_per_epoch(), train_->content_hash()};
}

absl::Status PolicyRole::FillDataCounts(bool data_only, v1::InitializeResult* result) const {
  const PromptStats& stats = train_->stats();
  result->set_train_rows(train_->rows());
  result->set_dropped_rows(stats.rows_filtered);
  result->set_truncated_rows(stats.rows_truncated);
  if (validation_ != nullptr) result->set_val_rows(validation_->rows());
  return absl::OkStatus();
}

CausalLmOptions PolicyRole::model_options() const {
  CausalLmOptions options = ModelOptions(spec_);
  options.backward = trains();
  options.ranks = communicator_->world_size();
  options.token_losses = true;
  return options;
}

absl::Status PolicyRole::OpenRest() {
  if (train_ == nullptr) return absl::OkStatus();
  step_since_ = absl::Now();
  if (NeedsReference(spec_) && pool_.reference) RETURN_IF_ERROR(OpenReference());
  for (const Scorer& scorer : scorers_) {
    for (RewardModel* model : scorer.models) {
      RETURN_IF_ERROR(Annotate(model->Load(spec_, device_), "reward model, beside the policy"));
    }
  }
  const bool needs_values = InfoOf(policy_.advantage.estimator).needs_values;
  return needs_values && trains() ? OpenCritic() : absl::OkStatus();
}

absl::Status PolicyRole::OpenReference() {
  ASSIGN_OR_RETURN(ReferenceModel reference, OpenReferenceModel(spec_, *encoder_, device_, model_options()));
  reference_parameters_ = std::move(reference.parameters);
  reference_ = std::move(reference.model);
  return absl::OkStatus();
}

std::map<std::string, std::string> PolicyRole::ExtraState() const {
  return {{kKlCoefficient, absl::StrFormat("%.17g", kl_controller_.kl_coef)},
          {kPromptBatches, absl::StrCat(steps_done_ + further_batches_)}};
}

absl::Status PolicyRole::RestoreExtraState(const TrainingState& state) {
  const auto found = state.extra.find(kKlCoefficient);
  if (found == state.extra.end() || !absl::SimpleAtod(found->second, &kl_controller_.kl_coef)) {
    return absl::InvalidArgumentError("was not made by a run of reinforcement learning: it has no kl_coef");
  }
  ASSIGN_OR_RETURN(const int64_t batches, BatchesTaken(state));
  further_batches_ = batches - state.step;
  last_filtered_ = {};
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PolicyRole::BatchesTaken(const TrainingState& state) const {
  const auto found = state.extra.find(kPromptBatches);
  if (found == state.extra.end()) return state.step;  // it is from before groups were replaced
  int64_t batches = 0;
  if (absl::SimpleAtoi(found->second, &batches) && batches >= state.step) return batches;
  return absl::InvalidArgumentError(
      absl::StrCat("prompt_batches is \"", found->second, "\" after ", state.step, " steps"));
}

absl::Status PolicyRole::CheckTurn(const v1::DataflowOp& op) const {
  const bool generates = op.op() == "generate" || op.op() == "filter";
  const bool here = generates || op.op() == "reward" ? pool_.rollout
                    : op.op() == "ref_logprob"       ? pool_.reference
                                                     : pool_.actor;
  if (!here) {
    return absl::FailedPreconditionError(absl::StrCat(op.op(), " is not a stage of pool ", pool_.name));
  }
  if (!pool_.actor) {
    if (has_policy()) RETURN_IF_ERROR(RequireModel());
    if (!generates || op.weight_version() == steps_done_) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(op.op(), " of step ", op.step(),
                                                      " is asked for with weights of version ", op.weight_version(),
                                                      ", but those here are of ", steps_done_));
  }
  RETURN_IF_ERROR(RequireTrainable());
  if (op.step() == steps_done_ + 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(op.op(), " of step ", op.step(), " is asked for, but ", steps_done_, " steps are done"));
}

absl::Status PolicyRole::CheckInputs(const v1::DataflowOp& op, const Step& step) const {
  // What a stage reads, by the ops that made it.
  static const auto* const kInputs = new std::map<std::string, std::vector<std::string>>{
      {"generate", {}},          {"reward", {"generate"}},         {"filter", {"reward"}},
      {"logprob", {"generate"}}, {"ref_logprob", {"generate"}},    {"values", {"generate"}},
      {"advantage", {"reward"}}, {"update_critic", {"advantage"}}, {"update", {"advantage"}}};
  const auto known = kInputs->find(op.op());
  if (known == kInputs->end()) return NotOfThisRecipe(op.op());
  std::vector<std::string> inputs = known->second;
  // What is left out costs nothing more.
  const bool reads_all = op.op() != "generate" && op.op() != "reward" && op.op() != "filter";
  if (reads_all && !policy_.filter_metric.empty()) inputs.emplace_back("filter");
  if (op.op() == "advantage" && has_logprob_) inputs.emplace_back("logprob");
  if (op.op() == "advantage" && NeedsReference(spec_)) inputs.emplace_back("ref_logprob");
  if (op.op() == "advantage" && critic_ != nullptr) inputs.emplace_back("values");
  if (op.op() == "update" && critic_ != nullptr) inputs.emplace_back("update_critic");
  for (const std::string& input : inputs) {
    if (step.done.contains(input)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(op.op(), " of step ", op.step(), " needs ", input, " first: what it made is not here"));
  }
  return absl::OkStatus();
}

void PolicyRole::NoteDone(const std::string& op, const std::string& stage, Step* step) {
  absl::MutexLock lock(&steps_mutex_);
  if (op == "reward") {
    if (const auto scorer = ScorerOf(stage); scorer.ok()) step->scorers_done.insert(*scorer);
    if (step->scorers_done.size() < scorers_.size()) return;
  }
  step->done.insert(op);
}

absl::StatusOr<std::shared_ptr<PolicyRole::Step>> PolicyRole::StepOf(const v1::DataflowOp& op) {
  absl::MutexLock lock(&steps_mutex_);
  if (op.op() == "generate") {
    // What is so old nobody asks for any more.
    const int64_t oldest = op.step() - 1 - MostStaleness(spec_.rollout());
    std::erase_if(steps_, [&](const auto& entry) { return entry.first < oldest || entry.first == op.step(); });
    if (kept_ != nullptr) kept_->DropBefore(oldest);
    // The step begins again.
    if (op.step() == last_filtered_.step) {
      further_batches_ -= last_filtered_.further_batches;
      last_filtered_ = {};
    }
  }
  std::shared_ptr<Step>& step = steps_[op.step()];
  if (step == nullptr) {
    step = std::make_shared<Step>();
    step->step = op.step();
    step->scored.resize(scorers_.size());
    ASSIGN_OR_RETURN(step->prompts, train_->PromptsForStep(op.step() - 1 + further_batches_));
  }
  return step;
}

void PolicyRole::DropStep(int64_t step) {
  absl::MutexLock lock(&steps_mutex_);
  steps_.erase(step);
}

void PolicyRole::ForgetAhead() {
  absl::MutexLock lock(&steps_mutex_);
  steps_.clear();
}

absl::StatusOr<v1::DataflowResult> PolicyRole::RunDataflowStage(const v1::DataflowOp& op) {
  if (op.op() == "weight_sync") return SyncWeights(op);
  RETURN_IF_ERROR(CheckTurn(op));
  const absl::Time start = absl::Now();
  Communicator& ranks = op.beside() ? *beside_ : *communicator_;
  ASSIGN_OR_RETURN(const std::shared_ptr<Step> step, StepOf(op));
  v1::DataflowResult result;
  const absl::Status status = [&]() -> absl::Status {
    if (op.inputs_size() > 0) {
      ASSIGN_OR_RETURN(const int64_t bytes, FetchInputs(op, step.get(), ranks));
      result.set_received_bytes(bytes);
    }
    {
      absl::MutexLock lock(&steps_mutex_);
      RETURN_IF_ERROR(CheckInputs(op, *step));
    }
    return op.op() == "generate"        ? GenerateStage(step.get())
           : op.op() == "reward"        ? ScoreStage(op.stage(), step.get(), ranks)
           : op.op() == "filter"        ? FilterStage(step.get())
           : op.op() == "logprob"       ? LogProbStage(step.get())
           : op.op() == "ref_logprob"   ? RefLogProbStage(step.get())
           : op.op() == "values"        ? ValuesStage(step.get())
           : op.op() == "advantage"     ? AdvantageStage(step.get())
           : op.op() == "update_critic" ? UpdateCriticStage(step.get())
                                        : UpdateStage(step.get(), result.mutable_ended_step());
  }();
  if (!status.ok()) {
    DropStep(op.step());
    return status;
  }
  result.set_step(op.step());
  result.set_stage(op.stage());
  double tokens = 0;
  for (const Answer& answer : step->answers) tokens += static_cast<double>(answer.tokens());
  std::vector<double> counts = {static_cast<double>(step->answers.size()), tokens};
  RETURN_IF_ERROR(ranks.AllReduceSum(absl::MakeSpan(counts)));
  result.set_samples(static_cast<int64_t>(counts[0]));
  result.set_tokens(static_cast<int64_t>(counts[1]));
  result.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  Failpoint(absl::StrCat("engine.stage.", op.op()).c_str());
  if (!op.ends_step()) {
    RETURN_IF_ERROR(KeepOutputs(op, result.seconds(), step.get(), &result));
    NoteDone(op.op(), op.stage(), step.get());
    if (op.drops_step()) DropStep(op.step());
    return result;
  }
  // Only now: the numbers of the step are to have this stage's time too.
  v1::StepMetrics& ended = *result.mutable_ended_step();
  (*ended.mutable_phase_seconds())[op.op()] = result.seconds();
  if (weight_sync_seconds_ > 0) {
    (*ended.mutable_phase_seconds())["weight_sync"] = std::exchange(weight_sync_seconds_, 0.0);
  }
  // Of the whole, not of the sum: stages run beside each other, and may have been waited for.
  const absl::Time now = absl::Now();
  ended.set_seconds(absl::ToDoubleSeconds(now - step_since_));
  step_since_ = now;
  DropStep(op.step());
  if (metrics_log_ != nullptr) RETURN_IF_ERROR(metrics_log_->Write(ended));
  return result;
}

absl::StatusOr<v1::CheckpointResult> PolicyRole::SaveCheckpoint(const v1::SaveCheckpointOp& op) {
  auto saved = ModelRole::SaveCheckpoint(op);
  step_since_ = absl::Now();
  return saved;
}

absl::StatusOr<v1::ValidationMetrics> PolicyRole::InferBatch(const v1::InferBatchOp& op) {
  if (has_policy()) RETURN_IF_ERROR(RequireModel());
  if (validation_ == nullptr) {
    return absl::FailedPreconditionError("data.val_files: there are none to validate on");
  }
  const absl::Time start = absl::Now();
  std::vector<int64_t> rows(static_cast<size_t>(validation_->rows()));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  MetricSums sums;
  std::vector<Answer> answers;
  const absl::Status local = [&]() -> absl::Status {
    if (!pool_.rollout) return absl::OkStatus();
    ASSIGN_OR_RETURN(answers, GenerateAnswers({.prompts = validation_.get(),
                                               .rows = rows,
                                               .sampling = policy_.validation_sampling,
                                               .n = spec_.rollout().val_kwargs().n(),
                                               .first_sample = kValidationStreams}));
    std::vector<StageResults> results;
    for (const Scorer& scorer : scorers_) {
      ASSIGN_OR_RETURN(results.emplace_back(), ScoreAnswers(scorer, *validation_, answers, "val/", &sums));
    }
    std::vector<const StageResults*> stages;
    for (const StageResults& result : results) stages.push_back(&result);
    return AddUpScores(stages, /*filter_metric=*/"", absl::MakeSpan(answers));
  }();
  RETURN_IF_ERROR(world_->Agree(local));
  if (judged_) AddEvaluation(answers, spec_.rollout().val_kwargs().n(), &sums);
  for (const Answer& answer : answers) {
    sums.AddMean("val/response_length/mean", static_cast<double>(answer.response_tokens()));
    sums.AddMean("val/response_length/clip_ratio", answer.truncated ? 1 : 0);
    sums.AddSum("samples", 1);
    sums.AddSum("response_tokens", static_cast<double>(answer.response_tokens()));
    if (!judged_ || !answer.score.has_value()) continue;
    sums.AddMean(absl::StrCat("val/score/", validation_->prompt(answer.row).data_source, "/mean"), *answer.score);
  }
  ASSIGN_OR_RETURN(auto numbers, sums.Reduce(*world_));
  v1::ValidationMetrics metrics;
  // What nobody judges is as good as it is near to the reference: the loss of distillation.
  if (!judged_ && NeedsReference(spec_)) {
    ASSIGN_OR_RETURN(const double divergence, MeasureDivergence(absl::MakeSpan(answers)));
    metrics.set_loss(divergence);
    metrics.set_scored_tokens(static_cast<int64_t>(numbers["response_tokens"]));
  }
  numbers.erase("response_tokens");
  metrics.set_step(op.step());
  metrics.set_samples(static_cast<int64_t>(numbers["samples"]));
  numbers.erase("samples");
  metrics.mutable_metrics()->insert(numbers.begin(), numbers.end());
  metrics.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  RETURN_IF_ERROR(NoteValidation(&metrics));
  step_since_ = absl::Now();
  if (metrics_log_ != nullptr) RETURN_IF_ERROR(metrics_log_->Write(metrics));
  return metrics;
}

}  // namespace sluice::engine
