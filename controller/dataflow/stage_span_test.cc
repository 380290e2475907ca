#include "controller/dataflow/stage_span.h"

#include "common/proto_time.h"
#include "common/testing/status_matchers.h"

namespace sluice::controller {
namespace {

using ::testing::ElementsAre;

const absl::Time kBegan = absl::FromUnixSeconds(100);
const absl::Time kEnded = absl::FromUnixMillis(102'500);

FlowPlan TwoPools() {
  FlowPlan flow;
  flow.pools = {{.name = "train", .first_rank = 0, .ranks = 2}, {.name = "answer", .first_rank = 2, .ranks = 1}};
  return flow;
}

Stage OfFlow(const std::string& name, const std::string& op, std::vector<int32_t> ranks) {
  Stage stage;
  v1::DataflowOp* request = stage.request.mutable_dataflow();
  request->set_stage(name);
  request->set_op(op);
  request->set_step(7);
  stage.ranks = std::move(ranks);
  return stage;
}

TEST(SpanOfTest, AStageOfTheFlowHasItsNameItsPoolAndItsTimes) {
  Stage stage = OfFlow("score", "reward", {2});
  stage.request.mutable_dataflow()->set_beside(true);
  const v1::StageSpan span = SpanOf(TwoPools(), stage, kBegan, kEnded);
  EXPECT_EQ(span.stage(), "score");
  EXPECT_EQ(span.op(), "reward");
  EXPECT_EQ(span.step(), 7);
  EXPECT_TRUE(span.beside());
  EXPECT_THAT(span.pools(), ElementsAre("answer"));
  EXPECT_EQ(FromTimestamp(span.begin_time()), kBegan);
  EXPECT_EQ(FromTimestamp(span.end_time()), kEnded);
}

TEST(SpanOfTest, WeightsGoFromOnePoolToTheOther) {
  const v1::StageSpan span = SpanOf(TwoPools(), OfFlow("weight_sync", "weight_sync", {0, 2}), kBegan, kEnded);
  EXPECT_THAT(span.pools(), ElementsAre("train", "answer"));
  EXPECT_FALSE(span.beside());
}

TEST(SpanOfTest, WhatIsForAllRanksRunsOnAllPools) {
  Stage stage;
  stage.request.mutable_infer_batch()->set_step(4);
  const v1::StageSpan span = SpanOf(TwoPools(), stage, kBegan, kEnded);
  EXPECT_EQ(span.stage(), "infer_batch");
  EXPECT_EQ(span.step(), 4);
  EXPECT_THAT(span.pools(), ElementsAre("train", "answer"));
}

TEST(SpanOfTest, AJobWithoutAFlowHasOnePool) {
  Stage stage;
  stage.request.mutable_train_batch()->set_step(2);
  EXPECT_THAT(SpanOf(FlowPlan(), stage, kBegan, kEnded).pools(), ElementsAre("all"));
  EXPECT_EQ(SpanOf(FlowPlan(), stage, kBegan, kEnded).op(), "train_batch");
  stage.request.mutable_initialize();
  EXPECT_EQ(SpanOf(FlowPlan(), stage, kBegan, kEnded).step(), 0);
}

}  // namespace
}  // namespace sluice::controller
