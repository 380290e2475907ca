// The course of a job as a pure state machine: from what is done so far to the stages that may begin. The shell
// (attempt_runner.h) carries stages to the workers and their results back.
//
//   initialize -> [validate before the first step] -> (step -> [validate] -> [checkpoint])* -> [export] -> done
//
// A step is one train_batch, or the stages of the job's data flow (step_flow.h), of which several may run at once.
// Everything else runs alone.
//
// Invariants (tests cite them by number):
//   PLAN-1  Steps are asked for one after the other, from resumed_step + 1 to total_steps, each once.
//   PLAN-2  At a step where both are due, validation comes before the checkpoint: a checkpoint implies its validation.
//   PLAN-3  The last step is validated (where there is validation data) and checkpointed, whatever the frequencies.
//   PLAN-4  forward_only: one validation, no step, no checkpoint, no export.
//   PLAN-5  Nothing but stages of steps comes between the stages of a step, and they alone run beside each other.
//   PLAN-6  A validation sees the weights of its step, on whichever ranks it runs.
//   PLAN-7  A validation after the first step that is better than every checkpoint (checkpoint.best_metric) is followed
//           by a checkpoint, due or not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/frequency.h"
#include "controller/dataflow/step_flow.h"
#include "sluice/v1/engine.pb.h"
#include "sluice/v1/job.pb.h"
#include "sluice/v1/types.pb.h"

namespace sluice::controller {

// What of the spec decides the course. Constant over a job.
struct JobPlan {
  bool forward_only = false;
  bool validate = false;  // there are validation files
  bool validate_before_train = false;
  bool checkpoint = false;  // something is to be saved in checkpoints
  Frequency validation_frequency;
  Frequency checkpoint_frequency;
  std::string export_path;  // empty: no export
  FlowPlan flow;            // without stages: a step is one train_batch
};

// InvalidArgument names the key at fault.
absl::StatusOr<JobPlan> MakeJobPlan(const v1::JobSpec& spec);

// What is done so far in an attempt.
struct JobProgress {
  bool initialized = false;
  int64_t step = 0;  // optimizer steps done
  FlowProgress flow;
  bool busy = false;  // a stage runs that is not of the flow
  int64_t resumed_step = 0;
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
  int64_t last_validation_step = -1;  // -1: none
  int64_t last_checkpoint_step = -1;  // -1: none
  int64_t best_validation_step = -1;  // of the last validation that was better than all checkpoints; -1: none
  bool exported = false;
};

struct Stage {
  v1::StageRequest request;  // without its sequence number
  // The state of the job while it runs: STARTING, RUNNING or CHECKPOINTING.
  v1::JobState job_state = v1::JOB_STATE_RUNNING;
  std::vector<int32_t> ranks;    // that it is for; empty: all
  std::optional<FlowItem> item;  // of the flow, where it is that
};

// The stages that may begin now. Empty: those that run are to be waited for, or, where none does, the job is done.
std::vector<Stage> ReadyStages(const JobPlan& plan, const JobProgress& progress);

// Nothing runs.
bool IsIdle(const JobProgress& progress);

// The progress once `stage`, which is ready, was begun.
void OnBegun(const JobPlan& plan, const Stage& stage, JobProgress* progress);

// The progress after `stage` gave `response`, the answers of all its ranks as one (results.h). Internal: the response
// does not answer the request, such as another step's numbers.
absl::StatusOr<JobProgress> OnResult(const JobPlan& plan, const JobProgress& progress, const Stage& stage,
                                     const v1::StageResponse& response, absl::Time now);

// The spec an attempt is started with. Attempts after the first resume from what the earlier ones of this job saved in
// default_local_dir, whatever resume_mode says for the first. `before` is the job's progress before the attempt.
v1::JobSpec SpecOfAttempt(const v1::JobSpec& spec, int32_t attempt, const v1::Progress& before);

// `initialize`, `train_batch`, ... and the op of a data flow's stage: for labels and messages.
std::string StageName(const v1::StageRequest& request);

// The step that it is about; 0: it names none.
int64_t StepOf(const v1::StageRequest& request);

}  // namespace sluice::controller
