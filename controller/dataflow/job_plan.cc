#include "controller/dataflow/job_plan.h"

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

// The next stage of the step that is under way, or its first.
Stage StageOfStep(const JobPlan& plan, const JobProgress& progress) {
  Stage stage;
  if (plan.dataflow.empty()) {
    stage.request.mutable_train_batch()->set_step(progress.step + 1);
    return stage;
  }
  const DataflowStage& next = plan.dataflow[progress.stages_done];
  v1::DataflowOp* op = stage.request.mutable_dataflow();
  op->set_step(progress.step + 1);
  op->set_stage(next.name);
  op->set_op(next.op);
  op->set_ends_step(progress.stages_done + 1 == plan.dataflow.size());
  return stage;
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
  plan.dataflow = DataflowOf(spec);
  return plan;
}

std::optional<Stage> NextStage(const JobPlan& plan, const JobProgress& progress) {
  Stage stage;
  if (progress.stages_done > 0) return StageOfStep(plan, progress);
  if (!progress.initialized) {
    stage.request.mutable_initialize();
    stage.job_state = v1::JOB_STATE_STARTING;
    return stage;
  }
  if (ValidationDue(plan, progress)) {
    stage.request.mutable_infer_batch()->set_step(progress.step);
    return stage;
  }
  if (plan.forward_only) return std::nullopt;
  if (CheckpointDue(plan, progress)) {
    stage.request.mutable_save_checkpoint()->set_step(progress.step);
    stage.job_state = v1::JOB_STATE_CHECKPOINTING;
    return stage;
  }
  if (progress.step < progress.total_steps) return StageOfStep(plan, progress);
  if (!plan.export_path.empty() && !progress.exported) {
    stage.request.mutable_export_weights()->set_path(plan.export_path);
    return stage;
  }
  return std::nullopt;
}

absl::StatusOr<JobProgress> OnResult(const JobPlan& plan, const JobProgress& progress, const Stage& stage,
                                     const v1::StageResponse& response) {
  JobProgress after = progress;
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
      if (!op.ends_step()) {
        ++after.stages_done;
        return after;
      }
      if (!result.has_ended_step() || result.ended_step().step() != op.step()) {
        return Mismatch(stage, "ends the step without its numbers");
      }
      after.stages_done = 0;
      after.step = op.step();
      return after;
    }
    case v1::StageRequest::kSaveCheckpoint:
      if (!response.has_save_checkpoint()) return Mismatch(stage, "is of another kind");
      if (response.save_checkpoint().step() != progress.step) {
        return Mismatch(stage,
                        absl::StrCat("is for step ", response.save_checkpoint().step(), ", not ", progress.step));
      }
      after.last_checkpoint_step = progress.step;
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

}  // namespace sluice::controller
