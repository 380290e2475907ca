#include "controller/dataflow/job_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::controller {
namespace {

// The folder of the exported model inside trainer.default_local_dir.
constexpr char kExportFolder[] = "huggingface";

bool ValidationDue(const JobPlan& plan, const JobProgress& progress) {
  if (!plan.validate || progress.last_validation_step == progress.step) return false;
  if (plan.forward_only) return true;
  if (progress.step == 0) return plan.validate_before_train;
  return IsDue(plan.validation_frequency, progress.step, progress.total_steps, progress.steps_per_epoch);
}

bool CheckpointDue(const JobPlan& plan, const JobProgress& progress) {
  if (!plan.checkpoint || progress.step == 0 || progress.last_checkpoint_step == progress.step) return false;
  return progress.best_validation_step == progress.step ||
         IsDue(plan.checkpoint_frequency, progress.step, progress.total_steps, progress.steps_per_epoch);
}

absl::StatusOr<Frequency> FrequencyOf(const std::string& text, const char* key) {
  auto frequency = ParseFrequency(text);
  if (!frequency.ok()) return Annotate(frequency.status(), key);
  return frequency;
}

// The next step at which everything stands still for a checkpoint; the last step where none is due before.
int64_t NextStandstill(const JobPlan& plan, const JobProgress& progress) {
  if (!plan.checkpoint) return progress.total_steps;
  // Generation is ahead by a bounded number of steps: no need to look further.
  const int64_t furthest = std::min(progress.total_steps, progress.step + 1 + plan.flow.ahead);
  const int64_t first = progress.last_checkpoint_step == progress.step ? progress.step + 1 : progress.step;
  for (int64_t step = std::max<int64_t>(first, 1); step < furthest; ++step) {
    if (IsDue(plan.checkpoint_frequency, step, progress.total_steps, progress.steps_per_epoch)) return step;
  }
  return furthest;
}

Stage StageOf(const JobPlan& plan, const JobProgress& progress, const FlowItem& item) {
  Stage stage;
  *stage.request.mutable_dataflow() = RequestOf(plan.flow, progress.flow, item);
  stage.ranks = RanksOf(plan.flow, item);
  stage.item = item;
  return stage;
}

// Those that have the trained weights, where not all do.
std::vector<int32_t> RanksThatTrain(const JobPlan& plan) {
  if (plan.flow.pools.size() < 2) return {};
  std::vector<int32_t> ranks;
  for (int64_t rank = 0; rank < plan.flow.pools[0].ranks; ++rank) ranks.push_back(static_cast<int32_t>(rank));
  return ranks;
}

absl::Status Mismatch(const Stage& stage, const std::string& what) {
  return absl::InternalError(absl::StrCat("the engine's answer to ", StageName(stage.request), " ", what));
}

}  // namespace

absl::StatusOr<JobPlan> MakeJobPlan(const v1::JobSpec& spec) {
  JobPlan plan;
  plan.forward_only = spec.engine().forward_only();
  plan.validate = spec.data().val_files_size() > 0;
  plan.validate_before_train = spec.trainer().val_before_train();
  plan.checkpoint = !plan.forward_only && spec.checkpoint().save_contents_size() > 0;
  ASSIGN_OR_RETURN(plan.validation_frequency, FrequencyOf(spec.trainer().test_freq(), "trainer.test_freq"));
  ASSIGN_OR_RETURN(plan.checkpoint_frequency, FrequencyOf(spec.trainer().save_freq(), "trainer.save_freq"));
  if (plan.forward_only && !plan.validate) {
    return absl::InvalidArgumentError(
        "engine.forward_only: only evaluates, and data.val_files is empty (name files to evaluate)");
  }
  if (spec.trainer().export_hf_model() && !plan.forward_only) {
    plan.export_path = absl::StrCat(spec.trainer().default_local_dir(), "/", kExportFolder);
  }
  plan.flow = MakeFlowPlan(spec);
  return plan;
}

bool IsIdle(const JobProgress& progress) { return !progress.busy && progress.flow.running.empty(); }

std::vector<Stage> ReadyStages(const JobPlan& plan, const JobProgress& progress) {
  if (progress.busy) return {};
  const bool idle = IsIdle(progress);
  const auto alone = [&](const Stage& stage) { return idle ? std::vector<Stage>{stage} : std::vector<Stage>(); };
  Stage stage;
  if (!progress.initialized) {
    stage.request.mutable_initialize();
    stage.job_state = v1::JOB_STATE_STARTING;
    return {stage};
  }
  if (ValidationDue(plan, progress)) {
    if (plan.flow.syncs_weights() && progress.flow.rollout_version != progress.step) {
      return alone(StageOf(plan, progress, SyncNow(progress.flow)));  // PLAN-6
    }
    stage.request.mutable_infer_batch()->set_step(progress.step);
    return alone(stage);
  }
  if (plan.forward_only) return {};
  if (CheckpointDue(plan, progress)) {
    stage.request.mutable_save_checkpoint()->set_step(progress.step);
    stage.job_state = v1::JOB_STATE_CHECKPOINTING;
    stage.ranks = RanksThatTrain(plan);
    return alone(stage);
  }
  if (progress.step < progress.total_steps) {
    if (plan.flow.stages.empty()) {
      stage.request.mutable_train_batch()->set_step(progress.step + 1);
      return {stage};
    }
    std::vector<Stage> stages;
    for (const FlowItem& item : ReadyItems(plan.flow, progress.flow, NextStandstill(plan, progress))) {
      stages.push_back(StageOf(plan, progress, item));
    }
    return stages;
  }
  if (!plan.export_path.empty() && !progress.exported) {
    stage.request.mutable_export_weights()->set_path(plan.export_path);
    stage.ranks = RanksThatTrain(plan);
    return alone(stage);
  }
  return {};
}

void OnBegun(const JobPlan& plan, const Stage& stage, JobProgress* progress) {
  if (stage.item.has_value()) return Begin(plan.flow, *stage.item, &progress->flow);
  progress->busy = true;
}

absl::StatusOr<JobProgress> OnResult(const JobPlan& plan, const JobProgress& progress, const Stage& stage,
                                     const v1::StageResponse& response, absl::Time now) {
  JobProgress after = progress;
  after.busy = false;
  const v1::StageRequest& request = stage.request;
  switch (request.op_case()) {
    case v1::StageRequest::kInitialize: {
      if (!response.has_initialize()) return Mismatch(stage, "is of another kind");
      const v1::InitializeResult& result = response.initialize();
      if (result.total_steps() < 0 || result.resumed_step() < 0 || result.resumed_step() > result.total_steps()) {
        return Mismatch(stage, absl::StrCat("resumes at step ", result.resumed_step(), " of ", result.total_steps()));
      }
      if (result.total_steps() > 0 && result.steps_per_epoch() < 1) return Mismatch(stage, "has no steps in an epoch");
      after.initialized = true;
      after.step = after.resumed_step = result.resumed_step();
      after.total_steps = result.total_steps();
      after.steps_per_epoch = result.steps_per_epoch();
      StandStill(after.step, &after.flow);
      after.flow.rollout_version = after.step;
      if (after.step > 0) {
        after.last_checkpoint_step = after.step;
        // PLAN-2: that checkpoint's validation is done. The last one is repeated, since its numbers are the job's
        // result.
        if (!plan.forward_only && after.step < after.total_steps) after.last_validation_step = after.step;
      }
      return after;
    }
    case v1::StageRequest::kInferBatch:
      if (!response.has_infer_batch()) return Mismatch(stage, "is of another kind");
      after.last_validation_step = progress.step;
      if (response.infer_batch().is_best()) after.best_validation_step = progress.step;
      return after;
    case v1::StageRequest::kTrainBatch:
      if (!response.has_train_batch()) return Mismatch(stage, "is of another kind");
      if (response.train_batch().step() != progress.step + 1) {
        return Mismatch(stage,
                        absl::StrCat("is for step ", response.train_batch().step(), ", not ", progress.step + 1));
      }
      after.step = progress.step + 1;
      return after;
    case v1::StageRequest::kDataflow: {
      if (!response.has_dataflow()) return Mismatch(stage, "is of another kind");
      const v1::DataflowOp& op = request.dataflow();
      const v1::DataflowResult& result = response.dataflow();
      if (result.step() != op.step() || result.stage() != op.stage()) {
        return Mismatch(stage, absl::StrCat("is for stage ", result.stage(), " of step ", result.step(), ", not ",
                                            op.stage(), " of ", op.step()));
      }
      after.busy = progress.busy;
      if (op.ends_step() && (!result.has_ended_step() || result.ended_step().step() != op.step())) {
        return Mismatch(stage, "ends the step without its numbers");
      }
      Finish(plan.flow, *stage.item, {result.outputs().begin(), result.outputs().end()}, now, &after.flow);
      after.step = after.flow.steps_done;
      return after;
    }
    case v1::StageRequest::kSaveCheckpoint:
      if (!response.has_save_checkpoint()) return Mismatch(stage, "is of another kind");
      if (response.save_checkpoint().step() != progress.step) {
        return Mismatch(stage,
                        absl::StrCat("is for step ", response.save_checkpoint().step(), ", not ", progress.step));
      }
      after.last_checkpoint_step = progress.step;
      StandStill(progress.step, &after.flow);
      return after;
    case v1::StageRequest::kExportWeights:
      if (!response.has_export_weights()) return Mismatch(stage, "is of another kind");
      after.exported = true;
      return after;
    default:
      return Mismatch(stage, "was not expected");
  }
}

v1::JobSpec SpecOfAttempt(const v1::JobSpec& spec, int32_t attempt, const v1::Progress& before) {
  v1::JobSpec result = spec;
  if (attempt <= 1) return result;
  v1::TrainerSpec* trainer = result.mutable_trainer();
  // total_steps is known once an attempt has loaded, and with resume_mode `disable` that attempt has seen the folder
  // empty of checkpoints: whatever is there now is this job's.
  const bool folder_is_ours = trainer->resume_mode() == "disable" && before.total_steps() > 0;
  const bool has_checkpoint = before.checkpoint_step() >= 0;
  if (folder_is_ours || has_checkpoint) {
    trainer->set_resume_mode("auto");
    trainer->clear_resume_from_path();
  }
  return result;
}

std::string StageName(const v1::StageRequest& request) {
  if (request.has_dataflow()) return request.dataflow().op();
  const auto* field = request.GetDescriptor()->FindFieldByNumber(request.op_case());
  return field == nullptr ? "none" : field->name();
}

int64_t StepOf(const v1::StageRequest& request) {
  switch (request.op_case()) {
    case v1::StageRequest::kDataflow:
      return request.dataflow().step();
    case v1::StageRequest::kTrainBatch:
      return request.train_batch().step();
    case v1::StageRequest::kInferBatch:
      return request.infer_batch().step();
    case v1::StageRequest::kSaveCheckpoint:
      return request.save_checkpoint().step();
    default:
      return 0;
  }
}

}  // namespace sluice::controller
