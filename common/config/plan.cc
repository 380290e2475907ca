#include "common/config/plan.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/config/frequency.h"
#include "common/config/memory_plan.h"
#include "common/config/plan_notes.h"
#include "common/config/preference.h"
#include "common/config/recipes.h"
#include "common/config/schedule_from_spec.h"
#include "common/config/steps.h"
#include "common/status_macros.h"

namespace sluice {
namespace {

std::vector<Plan::CurvePoint> CurveOf(const Schedule& schedule) {
  const int64_t total = schedule.total_steps();
  std::map<int64_t, std::string> labels;  // by step; the first label of a step stays
  labels.emplace(1, "first");
  // The first update at the full rate: update W + 1 uses f(W).
  if (schedule.warmup_steps() > 0) labels.emplace(schedule.warmup_steps() + 1, "end of warm-up");
  labels.emplace(total, "last");
  for (int quarter = 1; quarter <= 3; ++quarter) {
    labels.emplace(std::max<int64_t>(1, total * quarter / 4), quarter == 2 ? "1/2" : absl::StrCat(quarter, "/4"));
  }
  std::vector<Plan::CurvePoint> curve;
  for (const auto& [step, label] : labels) {
    curve.push_back({step, schedule.LearningRate(step), schedule.WeightDecay(step), label});
  }
  return curve;
}

Plan::Model ModelOf(const ModelFacts& facts) {
  return {facts.architecture, facts.parameters, facts.value_head ? facts.hidden_size : 0};
}

int64_t DivideUp(int64_t a, int64_t b) { return a / b + (a % b != 0); }

void PlanBatches(const v1::JobSpec& spec, const DataFacts& data, Plan* plan) {
  plan->rows_per_step = spec.data().train_batch_size();
  // Of those that train.
  const int64_t ranks_that_train = plan->pools.empty() ? plan->ranks : ActorPool(plan->pools).ranks;
  plan->rows_per_rank = DivideUp(plan->rows_per_step, ranks_that_train);
  plan->token_slots = spec.data().max_token_len_per_gpu();
  const int64_t longest_row = spec.data().max_length() * SequencesPerRow(spec);
  const int64_t longest_per_micro_batch = std::max<int64_t>(1, plan->token_slots / longest_row);
  plan->most_micro_batches = DivideUp(plan->rows_per_rank, longest_per_micro_batch);
  if (data.train_rows) {
    plan->train_rows = TrainRows(spec.data(), *data.train_rows);
    plan->steps_per_epoch = StepsPerEpoch(*plan->train_rows, plan->rows_per_step);
  }
  if (plan->steps_per_epoch || spec.trainer().has_total_training_steps()) {
    plan->total_steps = TotalSteps(spec.trainer(), plan->steps_per_epoch.value_or(0));
  }
  const bool has_rows = plan->train_rows.value_or(0) > 0;
  if (data.train_tokens && has_rows) {
    const double tokens_per_row = static_cast<double>(*data.train_tokens) / static_cast<double>(*plan->train_rows);
    const int64_t full_step = std::min(plan->rows_per_step, *plan->train_rows);
    plan->tokens_per_step = tokens_per_row * static_cast<double>(full_step);
  }
  const auto ranks = static_cast<double>(plan->ranks);
  if (data.micro_batches_per_epoch && has_rows) {
    plan->expected_micro_batches =
        static_cast<double>(*data.micro_batches_per_epoch) / static_cast<double>(*plan->steps_per_epoch) / ranks;
  } else if (plan->tokens_per_step) {
    plan->expected_micro_batches = std::ceil(*plan->tokens_per_step / ranks / static_cast<double>(plan->token_slots));
  }
}

std::string RowsAre(const v1::JobSpec& spec) {
  switch (KindOfRecipe(spec.recipe())) {
    case RecipeKind::kText:
    case RecipeKind::kDistillation:
      return "rows";
    case RecipeKind::kPolicy:
      return "prompts";
    case RecipeKind::kPreference:
      return LearnsFromPairs(spec) ? "pairs" : "labelled answers";
  }
  return "rows";
}

// The rows are prompts, and what fills micro-batches are their answers, whose lengths nobody knows yet.
void PlanAnswers(const v1::JobSpec& spec, Plan* plan) {
  plan->answers_per_step = plan->rows_per_step * spec.rollout().n();
  const int64_t mini_batch = std::min(spec.actor().ppo_mini_batch_size(), plan->rows_per_step);
  plan->updates_per_step = DivideUp(plan->rows_per_step, mini_batch) * spec.actor().ppo_epochs();
  const int64_t longest = spec.data().max_prompt_length() + spec.data().max_response_length();
  const int64_t per_micro_batch = std::max<int64_t>(1, plan->token_slots / longest);
  plan->most_micro_batches = DivideUp(plan->rows_per_rank * spec.rollout().n(), per_micro_batch);
  plan->expected_micro_batches.reset();
  plan->tokens_per_step.reset();
}

// REQUIRES: a frequency that ParseFrequency takes, as in a valid job.
std::string When(const std::string& text) {
  const absl::StatusOr<Frequency> frequency = ParseFrequency(text);
  if (!frequency.ok()) return "";
  switch (frequency->kind) {
    case Frequency::Kind::kAtEnd:
      return "at the end";
    case Frequency::Kind::kEverySteps:
      return frequency->steps == 1 ? "after every step"
                                   : absl::StrCat("every ", frequency->steps, " steps and at the end");
    case Frequency::Kind::kEachEpoch:
      return "after each epoch and at the end";
  }
  return "";
}

}  // namespace

absl::StatusOr<Plan> MakePlan(const v1::JobSpec& spec, const ModelFacts& model, const DataFacts& data) {
  JobModels models;
  models.trained = TrainsRewardModel(spec) ? WithValueHead(model) : model;
  if (NeedsCritic(spec)) models.critic = WithValueHead(model);
  return MakePlan(spec, models, data);
}

absl::StatusOr<Plan> MakePlan(const v1::JobSpec& spec, const JobModels& models, const DataFacts& data) {
  const ModelFacts& model = models.trained;
  Plan plan;
  plan.name = spec.name();
  plan.recipe = spec.recipe();
  plan.device = spec.engine().device();
  plan.model = ModelOf(model);
  if (models.critic.has_value() && !spec.engine().forward_only()) plan.critic = ModelOf(*models.critic);
  plan.nodes = spec.trainer().nnodes();
  plan.ranks_per_node = spec.trainer().n_gpus_per_node();
  plan.ranks = plan.nodes * plan.ranks_per_node;
  plan.dataflow = DataflowOf(spec);
  if (!plan.dataflow.empty()) {
    plan.pools = PoolsOf(spec);
    if (plan.pools.size() > 1) plan.mode = spec.rollout().mode();
  }
  PlanBatches(spec, data, &plan);
  plan.rows_are = RowsAre(spec);
  if (!spec.data().val_files().empty()) {
    plan.validation = absl::StrCat(spec.trainer().val_before_train() ? "before the first step, " : "",
                                   When(spec.trainer().test_freq()));
  }
  plan.checkpoints = When(spec.trainer().save_freq());
  if (!plan.dataflow.empty()) PlanAnswers(spec, &plan);
  if (plan.total_steps) {
    ASSIGN_OR_RETURN(const Schedule schedule, Schedule::Create(ScheduleFromSpec(spec.optim()), *plan.total_steps));
    plan.curve = CurveOf(schedule);
  }
  plan.memory_device = MemoryDevice(spec.engine());
  plan.memory = MemoryOf(spec, models, plan);
  plan.notes = NotesOn(spec, model, plan);
  return plan;
}

int64_t TotalMemoryBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const Plan::Memory& part : plan.memory) bytes += part.bytes;
  return bytes;
}

}  // namespace sluice
