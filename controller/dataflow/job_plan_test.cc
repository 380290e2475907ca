#include "controller/dataflow/job_plan.h"

#include <gmock/gmock.h>

#include <deque>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"

namespace sluice::controller {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

v1::JobSpec Spec(const std::string& test_freq, const std::string& save_freq) {
  v1::JobSpec spec;
  spec.mutable_data()->add_val_files("val.jsonl");
  spec.mutable_trainer()->set_test_freq(test_freq);
  spec.mutable_trainer()->set_save_freq(save_freq);
  spec.mutable_trainer()->set_val_before_train(true);
  spec.mutable_trainer()->set_default_local_dir("runs/x");
  spec.mutable_checkpoint()->add_save_contents("model");
  return spec;
}

// `best`: steps whose validation is the best so far.
v1::StageResponse Answer(const v1::StageRequest& request, int64_t resumed, int64_t total, int64_t per_epoch,
                         const std::set<int64_t>& best = {}) {
  v1::StageResponse response;
  switch (request.op_case()) {
    case v1::StageRequest::kInitialize:
      response.mutable_initialize()->set_resumed_step(resumed);
      response.mutable_initialize()->set_total_steps(total);
      response.mutable_initialize()->set_steps_per_epoch(per_epoch);
      break;
    case v1::StageRequest::kTrainBatch:
      response.mutable_train_batch()->set_step(request.train_batch().step());
      break;
    case v1::StageRequest::kDataflow:
      response.mutable_dataflow()->set_step(request.dataflow().step());
      response.mutable_dataflow()->set_stage(request.dataflow().stage());
      if (request.dataflow().ends_step())
        response.mutable_dataflow()->mutable_ended_step()->set_step(request.dataflow().step());
      break;
    case v1::StageRequest::kInferBatch:
      response.mutable_infer_batch()->set_is_best(best.contains(request.infer_batch().step()));
      break;
    case v1::StageRequest::kSaveCheckpoint:
      response.mutable_save_checkpoint()->set_step(request.save_checkpoint().step());
      break;
    default:
      response.mutable_export_weights();
  }
  return response;
}

absl::Time Now() { return absl::UnixEpoch(); }

// What is begun first, where it is done before the next is.
std::optional<Stage> NextStage(const JobPlan& plan, JobProgress* progress) {
  const std::vector<Stage> ready = ReadyStages(plan, *progress);
  if (ready.empty()) return std::nullopt;
  OnBegun(plan, ready[0], progress);
  return ready[0];
}

// The stage of this name of the first step, as if all before it were done.
Stage StageOfName(const JobPlan& plan, JobProgress* progress, const std::string& name) {
  while (true) {
    std::vector<Stage> ready = ReadyStages(plan, *progress);
    if (ready.empty()) {
      // What runs is done.
      const FlowItem item = progress->flow.running.front();
      Finish(plan.flow, item, {}, absl::UnixEpoch(), &progress->flow);
      continue;
    }
    OnBegun(plan, ready[0], progress);
    if (ready[0].request.dataflow().stage() == name) return ready[0];
    Finish(plan.flow, *ready[0].item, {}, absl::UnixEpoch(), &progress->flow);
  }
}

// The whole course as text: I, V<step>, T<step> or the stages of the data flow, S<step>, E.
std::string Course(const v1::JobSpec& spec, int64_t resumed, int64_t total, int64_t per_epoch,
                   const std::set<int64_t>& best = {}) {
  const JobPlan plan = *MakeJobPlan(spec);
  JobProgress progress;
  std::vector<std::string> course;
  std::deque<Stage> running;  // all take as long
  while (course.size() < 1000) {
    for (const Stage& stage : ReadyStages(plan, progress)) {
      const v1::StageRequest& request = stage.request;
      v1::JobState state = v1::JOB_STATE_RUNNING;
      if (request.has_initialize()) course.push_back("I"), state = v1::JOB_STATE_STARTING;
      if (request.has_infer_batch()) course.push_back(absl::StrCat("V", request.infer_batch().step()));
      if (request.has_train_batch()) course.push_back(absl::StrCat("T", request.train_batch().step()));
      if (request.has_dataflow()) {
        course.push_back(absl::StrCat(request.dataflow().stage(), request.dataflow().step()));
        if (request.dataflow().ends_step()) course.back() += "!";
      }
      if (request.has_save_checkpoint()) {
        course.push_back(absl::StrCat("S", request.save_checkpoint().step()));
        state = v1::JOB_STATE_CHECKPOINTING;
      }
      if (request.has_export_weights()) course.push_back("E:" + request.export_weights().path());
      EXPECT_EQ(stage.job_state, state);
      OnBegun(plan, stage, &progress);
      running.push_back(stage);
    }
    if (running.empty()) break;
    const Stage first = running.front();
    running.pop_front();
    progress = *OnResult(plan, progress, first, Answer(first.request, resumed, total, per_epoch, best), Now());
  }
  return absl::StrJoin(course, " ");
}

TEST(JobPlanTest, OnlyAtTheEnd) { EXPECT_EQ(Course(Spec("-1", "-1"), 0, 3, 3), "I V0 T1 T2 T3 V3 S3"); }

TEST(JobPlanTest, EverySoManyStepsAndAtTheEnd) {  // PLAN-2, PLAN-3
  EXPECT_EQ(Course(Spec("2", "3"), 0, 7, 7), "I V0 T1 T2 V2 T3 S3 T4 V4 T5 T6 V6 S6 T7 V7 S7");
}

TEST(JobPlanTest, AfterEachEpoch) {
  EXPECT_EQ(Course(Spec("after_each_epoch", "after_each_epoch"), 0, 5, 2), "I V0 T1 T2 V2 S2 T3 T4 V4 S4 T5 V5 S5");
}

TEST(JobPlanTest, ABetterValidationIsSaved) {  // PLAN-7
  EXPECT_EQ(Course(Spec("1", "3"), 0, 4, 4, {0, 2, 3}), "I V0 T1 V1 T2 V2 S2 T3 V3 S3 T4 V4 S4")
      << "before the first step there is nothing to save; a due checkpoint is saved once";
  v1::JobSpec spec = Spec("1", "-1");
  spec.mutable_checkpoint()->clear_save_contents();
  EXPECT_EQ(Course(spec, 0, 2, 2, {1}), "I V0 T1 V1 T2 V2");
}

TEST(JobPlanTest, WithoutValidationFilesNothingIsValidated) {
  v1::JobSpec spec = Spec("1", "-1");
  spec.mutable_data()->clear_val_files();
  EXPECT_EQ(Course(spec, 0, 2, 2), "I T1 T2 S2");
}

TEST(JobPlanTest, WithoutSaveContentsNothingIsSaved) {
  v1::JobSpec spec = Spec("-1", "1");
  spec.mutable_checkpoint()->clear_save_contents();
  EXPECT_EQ(Course(spec, 0, 2, 2), "I V0 T1 T2 V2");
}

TEST(JobPlanTest, ExportsAtTheEnd) {
  v1::JobSpec spec = Spec("-1", "-1");
  spec.mutable_trainer()->set_export_hf_model(true);
  spec.mutable_trainer()->set_val_before_train(false);
  EXPECT_EQ(Course(spec, 0, 1, 1), "I T1 V1 S1 E:runs/x/huggingface");
}

TEST(JobPlanTest, ResumesAfterTheCheckpoint) {
  v1::JobSpec spec = Spec("2", "2");
  spec.mutable_trainer()->set_export_hf_model(true);
  EXPECT_EQ(Course(spec, 2, 5, 5), "I T3 T4 V4 S4 T5 V5 S5 E:runs/x/huggingface");
  // All steps were done before: the result is validated and exported again.
  EXPECT_EQ(Course(spec, 5, 5, 5), "I V5 E:runs/x/huggingface");
}

TEST(JobPlanTest, ForwardOnlyEvaluates) {  // PLAN-4
  v1::JobSpec spec = Spec("1", "1");
  spec.mutable_engine()->set_forward_only(true);
  spec.mutable_trainer()->set_export_hf_model(true);
  EXPECT_EQ(Course(spec, 0, 0, 0), "I V0");
  EXPECT_EQ(Course(spec, 3, 9, 3), "I V3");
  spec.mutable_data()->clear_val_files();
  EXPECT_THAT(MakeJobPlan(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.val_files")));
}

TEST(JobPlanTest, EveryStepOnceForAnyFrequencies) {  // PLAN-1, PLAN-3
  for (const std::string test_freq : {"-1", "1", "3", "after_each_epoch"}) {
    for (const std::string save_freq : {"-1", "1", "4", "after_each_epoch"}) {
      for (int64_t resumed = 0; resumed <= 6; ++resumed) {
        const std::string course = Course(Spec(test_freq, save_freq), resumed, 6, 4) + " ";
        for (int64_t step = 1; step <= 6; ++step) {
          const size_t first = course.find(absl::StrCat(" T", step, " "));
          EXPECT_EQ(first != std::string::npos, step > resumed) << course;
          if (first != std::string::npos) {
            EXPECT_EQ(course.find(absl::StrCat(" T", step, " "), first + 1), std::string::npos);
          }
        }
        EXPECT_THAT(course, HasSubstr(" V6 "));
        if (resumed < 6) {
          EXPECT_THAT(course, HasSubstr(" V6 S6 "));
        }
      }
    }
  }
}

TEST(JobPlanTest, StagesOfTheDataFlowMakeAStep) {  // PLAN-5
  v1::JobSpec spec = Spec("1", "-1");
  spec.set_recipe("grpo");
  EXPECT_EQ(Course(spec, 0, 2, 2),
            "I V0 rollout1 score1 old_logprob1 advantage1 update1! V1 "
            "rollout2 score2 old_logprob2 advantage2 update2! V2 S2");
  spec.mutable_actor()->set_use_kl_loss(true);
  EXPECT_EQ(Course(spec, 1, 2, 2), "I rollout2 score2 old_logprob2 ref_logprob2 advantage2 update2! V2 S2");
}

TEST(JobPlanTest, AnswersOfOtherStagesAreRefused) {
  v1::JobSpec spec = Spec("-1", "-1");
  spec.set_recipe("grpo");
  spec.mutable_trainer()->set_val_before_train(false);
  const JobPlan plan = *MakeJobPlan(spec);
  JobProgress progress;
  progress.initialized = true;
  progress.total_steps = progress.steps_per_epoch = 3;
  const Stage stage = *NextStage(plan, &progress);
  v1::StageResponse response;
  response.mutable_dataflow()->set_step(1);
  response.mutable_dataflow()->set_stage("update");
  EXPECT_THAT(OnResult(plan, progress, stage, response, Now()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("is for stage update of step 1, not rollout of 1")));
  response.mutable_dataflow()->set_stage("rollout");
  ASSERT_OK_AND_ASSIGN(progress, OnResult(plan, progress, stage, response, Now()));
  EXPECT_EQ(progress.step, 0);
  const Stage score = *NextStage(plan, &progress);
  EXPECT_EQ(score.request.dataflow().stage(), "score");
  const Stage last = StageOfName(plan, &progress, "update");
  response.mutable_dataflow()->set_stage("update");
  EXPECT_THAT(OnResult(plan, progress, last, response, Now()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("without its numbers")));
}

TEST(JobPlanTest, StagesRunAtOnceAndNothingElseBesideThem) {  // PLAN-5
  v1::JobSpec spec = Spec("1", "-1");
  spec.set_recipe("grpo");
  spec.mutable_trainer()->set_val_before_train(false);
  const JobPlan plan = *MakeJobPlan(spec);
  JobProgress progress;
  const auto finish = [&](const Stage& stage) {
    progress = *OnResult(plan, progress, stage, Answer(stage.request, 0, 2, 2), Now());
  };
  finish(*NextStage(plan, &progress));
  finish(*NextStage(plan, &progress));
  std::vector<Stage> both = ReadyStages(plan, progress);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].request.dataflow().stage(), "score");
  EXPECT_TRUE(both[0].request.dataflow().beside());
  EXPECT_EQ(both[1].request.dataflow().stage(), "old_logprob");
  for (const Stage& stage : both) OnBegun(plan, stage, &progress);
  EXPECT_TRUE(ReadyStages(plan, progress).empty());
  finish(both[1]);
  EXPECT_TRUE(ReadyStages(plan, progress).empty()) << "the advantage needs the score";
  EXPECT_FALSE(IsIdle(progress));
  finish(both[0]);
  finish(*NextStage(plan, &progress));
  const Stage update = *NextStage(plan, &progress);
  EXPECT_TRUE(update.request.dataflow().ends_step());
  finish(update);
  EXPECT_TRUE(IsIdle(progress));
  EXPECT_TRUE(ReadyStages(plan, progress)[0].request.has_infer_batch());
}

TEST(JobPlanTest, APoolOfItsOwnHasTheWeightsBeforeItValidates) {  // PLAN-6
  v1::JobSpec spec = Spec("1", "2");
  spec.set_recipe("grpo");
  spec.mutable_trainer()->set_nnodes(1);
  spec.mutable_trainer()->set_n_gpus_per_node(2);
  spec.mutable_trainer()->set_export_hf_model(true);
  for (const char* role : {"actor", "rollout"}) {
    v1::PoolSpec* pool = spec.add_pools();
    pool->set_pool(role);
    pool->set_ranks(1);
    pool->add_roles(role);
  }
  spec.mutable_rollout()->set_mode("sync");
  EXPECT_EQ(Course(spec, 0, 2, 2),
            "I V0 rollout1 score1 old_logprob1 advantage1 update1! weight_sync1 V1 "
            "rollout2 score2 old_logprob2 advantage2 update2! weight_sync2 V2 S2 E:runs/x/huggingface");
  // One step off: no step after the checkpoint is begun before it.
  spec.mutable_rollout()->set_mode("one_step_off");
  EXPECT_EQ(Course(spec, 0, 3, 3),
            "I V0 rollout1 score1 old_logprob1 rollout2 advantage1 score2 update1! weight_sync1 V1 "
            "old_logprob2 advantage2 update2! weight_sync2 V2 S2 "
            "rollout3 score3 old_logprob3 advantage3 update3! weight_sync3 V3 S3 E:runs/x/huggingface");
}

TEST(JobPlanTest, BadFrequenciesNameTheirKey) {
  EXPECT_THAT(MakeJobPlan(Spec("0", "-1")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.test_freq")));
  EXPECT_THAT(MakeJobPlan(Spec("-1", "often")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("trainer.save_freq")));
}

TEST(JobPlanTest, AnAnswerToAnotherQuestionIsAnError) {
  const JobPlan plan = *MakeJobPlan(Spec("-1", "-1"));
  JobProgress progress;
  const auto initialize = NextStage(plan, &progress);
  v1::StageResponse wrong;
  wrong.mutable_train_batch()->set_step(1);
  EXPECT_THAT(OnResult(plan, progress, *initialize, wrong, Now()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("initialize")));
  progress = JobProgress();
  progress.initialized = true;
  progress.total_steps = progress.steps_per_epoch = 5;
  progress.last_validation_step = 0;
  const auto step = NextStage(plan, &progress);
  wrong.mutable_train_batch()->set_step(2);
  EXPECT_THAT(OnResult(plan, progress, *step, wrong, Now()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("step 2, not 1")));
}

TEST(SpecOfAttemptTest, LaterAttemptsResumeWhatTheJobSaved) {
  const auto mode = [](const std::string& first, int32_t attempt, int64_t total_steps, int64_t checkpoint) {
    v1::JobSpec spec;
    spec.mutable_trainer()->set_resume_mode(first);
    v1::Progress before;
    before.set_total_steps(total_steps);
    before.set_checkpoint_step(checkpoint);
    return SpecOfAttempt(spec, attempt, before).trainer().resume_mode();
  };
  EXPECT_EQ(mode("disable", 1, 0, -1), "disable");
  EXPECT_EQ(mode("disable", 2, 10, 5), "auto");
  EXPECT_EQ(mode("disable", 2, 10, -1), "auto") << "a save may have been committed and its answer lost";
  EXPECT_EQ(mode("disable", 2, 0, -1), "disable") << "nobody has looked at the folder yet";
  EXPECT_EQ(mode("resume_path", 2, 10, -1), "resume_path");
  EXPECT_EQ(mode("resume_path", 2, 10, 5), "auto");
  EXPECT_EQ(mode("auto", 2, 10, 5), "auto");
}

}  // namespace
}  // namespace sluice::controller
