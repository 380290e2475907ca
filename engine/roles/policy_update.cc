// PolicyRole: from advantages to new weights.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/failpoint.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/roles/policy_role.h"
#include "engine/roles/rollout_dump.h"

namespace sluice::engine {

std::vector<int64_t> PolicyRole::MiniBatchOfPlaces(const Step& step, int64_t pass, int64_t size) const {
  const auto prompts = static_cast<int64_t>(step.prompts.rows.size());
  size = std::min(size, prompts);
  std::vector<int64_t> mini_batch_of(static_cast<size_t>(prompts));
  if (prompts == 0) return mini_batch_of;
  const uint64_t key = static_cast<uint64_t>(spec_.trainer().seed()) + static_cast<uint64_t>(step.step) * 1'000'003;
  const EpochPermutation permutation(prompts, key, pass);
  for (int64_t i = 0; i < prompts; ++i) {
    const int64_t place = spec_.actor().shuffle() ? permutation(i) : i;
    mini_batch_of[static_cast<size_t>(place)] = i / size;
  }
  return mini_batch_of;
}

std::vector<std::vector<int32_t>> PolicyRole::MiniBatches(const Step& step, int64_t pass, int64_t size) const {
  const std::vector<int64_t> mini_batch_of = MiniBatchOfPlaces(step, pass, size);
  std::vector<std::vector<int32_t>> mini_batches;
  if (mini_batch_of.empty()) return mini_batches;
  mini_batches.resize(static_cast<size_t>(*std::max_element(mini_batch_of.begin(), mini_batch_of.end()) + 1));
  for (size_t i = 0; i < step.answers.size(); ++i) {
    const Answer& answer = step.answers[i];
    if (!answer.learned) continue;
    mini_batches[static_cast<size_t>(mini_batch_of[static_cast<size_t>(answer.place)])].push_back(
        static_cast<int32_t>(i));
  }
  return mini_batches;
}

absl::Status PolicyRole::SelectFor(const std::vector<int32_t>& chosen, int64_t update, Step* step) {
  const absl::Span<Answer> answers = absl::MakeSpan(step->answers);
  // The first update starts from the weights that the old log-probabilities are of.
  std::vector<float> Answer::*const log_prob = update == 0 ? &Answer::old_log_prob : &Answer::log_prob;
  if (update > 0) {
    const absl::Status scored = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::vector<PackedAnswers> packed,
                       PackAnswers(answers, chosen, spec_.data().max_token_len_per_gpu()));
      return FillLogProbs(*model_, packed, &Answer::log_prob, answers, /*entropy=*/nullptr);
    }();
    RETURN_IF_ERROR(communicator_->Agree(scored));
    step->flops += AnswerFlops(parameters_->config(), answers, chosen) / 3;
  }
  const uint64_t seed = static_cast<uint64_t>(spec_.trainer().seed()) + static_cast<uint64_t>(step->step) * 1'000'003 +
                        static_cast<uint64_t>(update);
  RETURN_IF_ERROR(SelectTokens(policy_.selection, chosen, log_prob, seed, answers, *communicator_));
  WeightedSum share;
  for (const int32_t place : chosen) {
    const Answer& answer = answers[static_cast<size_t>(place)];
    for (size_t t = 0; t < answer.selected.size(); ++t) {
      if (answer.Counts(t)) share.Add(answer.selected[t]);
    }
  }
  step->metrics.AddMean("actor/selected_tokens", share);
  return absl::OkStatus();
}

absl::StatusOr<PolicyRole::Update> PolicyRole::UpdateOn(const std::vector<int32_t>& chosen, int64_t number,
                                                        Step* step) {
  const absl::Span<const Answer> answers = step->answers;
  Update update;
  ASSIGN_OR_RETURN(const BatchTotals totals,
                   CountOverRanks(answers, chosen, policy_.loss_scale_factor, *communicator_));
  update.empty = totals.sequences == 0;
  if (update.empty) return update;
  const bool selects = InfoOf(policy_.loss.mode).needs_selection;
  if (selects) RETURN_IF_ERROR(SelectFor(chosen, number, step));
  const TokenScoring scoring = {.temperature = policy_.temperature, .entropy = policy_.loss.entropy_coeff != 0};

  const auto backward = [&](const PackedAnswers& packed, GradientMode mode) -> absl::Status {
    const std::vector<float> old_log_prob = BySlot(answers, packed, &Answer::old_log_prob);
    const std::vector<float> advantage = BySlot(answers, packed, &Answer::advantage);
    std::vector<float> ref_log_prob, importance_weight;
    if (policy_.loss.use_kl_loss) ref_log_prob = BySlot(answers, packed, &Answer::ref_log_prob);
    if (policy_.correction.importance != RolloutImportance::kNone) {
      importance_weight = BySlot(answers, packed, &Answer::importance_weight);
    }
    std::vector<uint8_t> selected;
    if (selects) selected = BySlot(answers, packed, &Answer::selected);
    const auto loss = [&](const TokenScores& scores) -> absl::StatusOr<TokenGradients> {
      TokenGradients gradients;
      gradients.d_log_prob.resize(scores.log_prob.size());
      if (scoring.entropy) gradients.d_entropy.resize(scores.log_prob.size());
      const PolicyLossInputs inputs = {.batch = packed.tokens(),
                                       .log_prob = scores.log_prob,
                                       .old_log_prob = old_log_prob,
                                       .advantage = advantage,
                                       .entropy = scores.entropy,
                                       .ref_log_prob = ref_log_prob,
                                       .importance_weight = importance_weight,
                                       .selected = selected};
      ASSIGN_OR_RETURN(const PolicyLossMetrics metrics,
                       PolicyLoss(policy_.loss, inputs, totals, {gradients.d_log_prob, gradients.d_entropy}));
      update.loss += metrics;
      return gradients;
    };
    RETURN_IF_ERROR(model_->ForwardBackward(packed.batch, scoring, loss, mode));
    Failpoint("engine.micro_batch");
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(communicator_->Agree(
      AccumulateGradients(answers, chosen, spec_.data().max_token_len_per_gpu(), *parameters_, backward)));
  RETURN_IF_ERROR(ApplyGradients(/*loss=*/{}));
  ASSIGN_OR_RETURN(update.applied, ReadApplied());
  return update;
}

absl::Status PolicyRole::DumpAnswers(int64_t step, absl::Span<const std::vector<Answer>* const> lists) const {
  const std::string& folder = spec_.trainer().rollout_data_dir();
  std::vector<const Answer*> answers;
  for (const std::vector<Answer>* list : lists) {
    for (const Answer& answer : *list) answers.push_back(&answer);
  }
  if (folder.empty() || answers.empty()) return absl::OkStatus();
  return Annotate(DumpRollout(folder, step, options_.rank, *train_, answers), "trainer.rollout_data_dir");
}

absl::Status PolicyRole::UpdateStage(Step* step, v1::StepMetrics* metrics) {
  RETURN_IF_ERROR(communicator_->Agree(DumpAnswers(step->step, {&step->answers, &step->left_out})));
  PolicyLossMetrics loss;
  UpdateCounts counts;
  // In the first steps of a run with a critic it alone learns.
  const bool warming_up = critic_ != nullptr && step->step < spec_.trainer().critic_warmup();
  const int64_t passes = warming_up ? 0 : spec_.actor().ppo_epochs();
  for (int64_t pass = 0; pass < passes; ++pass) {
    for (const std::vector<int32_t>& chosen : MiniBatches(*step, pass, spec_.actor().ppo_mini_batch_size())) {
      ASSIGN_OR_RETURN(const Update update, UpdateOn(chosen, counts.updates, step));
      if (update.empty) continue;
      step->flops += AnswerFlops(parameters_->config(), step->answers, chosen);
      counts.Add(update.applied);
      loss += update.loss;
    }
  }
  counters_.optimizer_updates += counts.applied();
  if (counts.skipped > 0 || step->critic_skipped) {
    std::vector<int64_t> rows;
    for (const Answer& answer : step->answers) rows.push_back(answer.row);
    RETURN_IF_ERROR(NoteSkippedStep(rows));
  } else {
    counters_.skipped_in_a_row = 0;
  }
  ASSIGN_OR_RETURN(*metrics, EndStep(step, loss, counts));
  // The policy's schedule is of its own steps.
  schedule_steps_ += !warming_up;
  return absl::OkStatus();
}

absl::StatusOr<v1::StepMetrics> PolicyRole::EndStep(Step* step, const PolicyLossMetrics& loss,
                                                    const UpdateCounts& counts) {
  MetricSums& sums = step->metrics;
  for (const Scored& scored : step->scored) sums.Merge(scored.metrics);
  // Each rank has its part of every update's loss; the parts add up, and the step's is the mean over its updates.
  if (counts.updates > 0) {
    const double share = 1.0 / static_cast<double>(counts.updates);
    sums.AddSum("loss", loss.loss * share);
    sums.AddSum("actor/pg_loss", loss.pg_loss * share);
    if (policy_.loss.entropy_coeff != 0) sums.AddSum("actor/entropy_loss", loss.entropy_loss * share);
    if (policy_.loss.use_kl_loss) sums.AddSum("actor/kl_loss", loss.kl_loss * share);
    sums.AddMean("actor/pg_clipfrac", loss.clip_fraction);
    sums.AddMean("actor/pg_clipfrac_lower", loss.clip_fraction_lower);
    sums.AddMean("actor/ppo_kl", loss.ppo_kl);
    sums.AddMax("actor/max_abs_log_ratio", loss.max_abs_log_ratio);
  }
  double response_tokens = 0;
  for (const Answer& answer : step->answers) {
    response_tokens += static_cast<double>(answer.response_tokens());
    sums.AddSum("tokens", static_cast<double>(answer.tokens()));
    sums.AddMean("training/learned_answers", answer.learned ? 1 : 0);
    sums.AddMax("training/staleness", static_cast<double>(steps_done_ - answer.weight_version));
  }
  sums.AddSum("flops", step->flops);
  sums.AddSum("response_tokens", response_tokens);
  sums.AddSum("samples", static_cast<double>(step->answers.size()));
  ASSIGN_OR_RETURN(auto numbers, sums.Reduce(*communicator_));

  v1::StepMetrics metrics;
  metrics.set_step(step->step);
  metrics.set_epoch(step->prompts.epoch);
  metrics.set_loss(numbers["loss"]);
  // 0 where nothing was learned, not finite where every update was skipped.
  const double norm = counts.applied() > 0 ? counts.MeanGradNorm() : std::nan("");
  metrics.set_grad_norm(counts.updates == 0 ? 0 : norm);
  metrics.set_lr(schedule_->LearningRate(schedule_steps_ + 1));
  metrics.set_weight_decay(schedule_->WeightDecay(schedule_steps_ + 1));
  metrics.set_tokens(static_cast<int64_t>(numbers["tokens"]));
  metrics.set_scored_tokens(static_cast<int64_t>(numbers["response_tokens"]));
  metrics.set_token_slots(static_cast<int64_t>(numbers["token_slots"]));
  metrics.set_micro_batches(static_cast<int64_t>(numbers["micro_batches"]));
  metrics.set_samples(static_cast<int64_t>(numbers["samples"]));
  metrics.set_model_flops(numbers["flops"]);
  metrics.set_skipped_nonfinite(counts.skipped > 0);
  for (const char* name : {"loss", "tokens", "response_tokens", "token_slots", "micro_batches", "flops", "samples"}) {
    numbers.erase(name);
  }
  for (auto number = numbers.begin(); number != numbers.end();) {
    absl::string_view name = number->first;
    const bool is_time = absl::ConsumePrefix(&name, kSecondsOf);
    if (is_time) (*metrics.mutable_phase_seconds())[std::string(name)] = number->second;
    number = is_time ? numbers.erase(number) : std::next(number);
  }
  metrics.mutable_metrics()->insert(numbers.begin(), numbers.end());
  (*metrics.mutable_metrics())["training/updates"] = static_cast<double>(counts.updates);
  counters_.samples += metrics.samples();
  counters_.tokens += metrics.tokens();
  counters_.loss_tokens += metrics.scored_tokens();
  metrics.set_nonfinite_steps_total(counters_.skipped_updates);
  FillMemory(&metrics);
  further_batches_ += std::max<int64_t>(step->batches, 1) - 1;
  ++steps_done_;
  return metrics;
}

}  // namespace sluice::engine
