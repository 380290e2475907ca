// Pools and modes: from the file to ranks, and what is said of pools that cannot be.
#include "common/config/dataflow.h"
#include "common/config/job_reader.h"
#include "common/config/pools.h"
#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

LoadResult Load(const std::string& pools, std::vector<std::string> overrides = {}) {
  LoadOptions options;
  options.file = "job.yaml";
  options.text =
      "recipe: grpo\nmodel: {path: /m}\ndata: {train_files: [/t.jsonl], train_batch_size: 8}\npools: " + pools;
  options.overrides = std::move(overrides);
  options.env = [](const std::string&) { return std::nullopt; };
  options.working_folder = "/";
  return LoadJob(options);
}

std::string ErrorsOf(const LoadResult& result) { return std::string(ToStatus(result.errors).message()); }

constexpr char kTwo[] = "[{pool: answer, ranks: 1, roles: rollout}, {pool: train, ranks: 2, roles: [actor, ref]}]";

TEST(PoolsTest, TheActorsRanksAreTheFirst) {
  const LoadResult result =
      Load(kTwo, {"trainer.n_gpus_per_node=3", "actor.use_kl_loss=true", "algorithm.filter_groups.enable=true"});
  ASSERT_THAT(ErrorsOf(result), IsEmpty());
  const std::vector<Pool> pools = PoolsOf(result.spec);
  ASSERT_EQ(pools.size(), 2u);
  EXPECT_EQ(pools[0].name, "train");
  EXPECT_EQ(pools[0].first_rank, 0);
  EXPECT_EQ(pools[1].name, "answer");
  EXPECT_EQ(pools[1].first_rank, 2);
  EXPECT_TRUE(RolloutIsSeparate(result.spec));
  EXPECT_EQ(PoolOfRank(pools, 1).name, "train");
  EXPECT_EQ(PoolOfRank(pools, 2).name, "answer");
  for (const DataflowStage& stage : DataflowOf(result.spec)) {
    const bool answers =
        stage.op == "generate" || stage.op == "reward" || stage.op == "filter" || stage.op == "weight_sync";
    EXPECT_EQ(stage.pool, answers ? "answer" : "train") << stage.name;
  }
  EXPECT_EQ(DataflowOf(result.spec).back().op, "weight_sync");
}

TEST(PoolsTest, WithoutPoolsThereIsOne) {
  const LoadResult result = Load("[]", {"trainer.n_gpus_per_node=4"});
  ASSERT_THAT(ErrorsOf(result), IsEmpty());
  ASSERT_EQ(PoolsOf(result.spec).size(), 1u);
  EXPECT_EQ(PoolsOf(result.spec)[0].ranks, 4);
  EXPECT_FALSE(RolloutIsSeparate(result.spec));
  EXPECT_EQ(MostStaleness(result.spec.rollout()), 0);
}

TEST(PoolsTest, ModesBoundTheStaleness) {
  const std::vector<std::string> ranks = {"trainer.n_gpus_per_node=3"};
  for (const auto& [mode, bound] : std::vector<std::pair<std::string, int64_t>>{{"one_step_off", 1}, {"async", 4}}) {
    const LoadResult result =
        Load(kTwo, {"trainer.n_gpus_per_node=3", "rollout.mode=" + mode, "rollout.max_staleness=4"});
    ASSERT_THAT(ErrorsOf(result), IsEmpty());
    EXPECT_EQ(MostStaleness(result.spec.rollout()), bound);
  }
}

TEST(PoolsTest, WhatCannotBeIsNamedWithItsPlace) {
  const std::vector<std::string> three = {"trainer.n_gpus_per_node=3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), three.begin(), three.end());
    return more;
  };
  const std::vector<std::tuple<std::string, std::vector<std::string>, std::string>> cases = {
      {kTwo, {}, "pools: have 3 ranks together, but trainer.nnodes 1 * trainer.n_gpus_per_node 1 = 1"},
      {"[{pool: a, ranks: 2, roles: actor}, {pool: a, ranks: 1, roles: rollout}]", three,
       "job.yaml:4: pools[1].pool: a is the name of pools[0] too"},
      {"[{pool: a, ranks: 2, roles: [actor, rollout]}, {pool: b, ranks: 1, roles: rollout}]", three,
       "pools[1].roles: rollout is placed on a already; a role has one pool"},
      {"[{pool: a, ranks: 3, roles: actor}]", three, "pools: no pool has the role rollout"},
      {"[{pool: a, ranks: 3, roles: [actor, rolout]}]", three,
       "pools[0].roles[1]: expected one of actor, rollout, ref"},
      {"[{pool: a, ranks: 0, roles: actor}]", three, "pools[0].ranks: must be at least 1"},
      {"[{pool: a, ranks: 1, roles: actor}, {pool: b, ranks: 1, roles: rollout}, {pool: c, ranks: 1, roles: ref}]",
       three, "pools[2].roles: ref has nothing to do without algorithm.use_kl_in_reward or actor.use_kl_loss"},
      {kTwo, with({"data.train_batch_size=9"}),
       "data.train_batch_size: 9 rows do not divide by the 2 ranks of pool train"},
      {kTwo, with({"engine.dp_size=3"}), "engine.dp_size: 3 data-parallel ranks do not match the 2 of pool train"},
      {"[]",
       {"rollout.mode=one_step_off"},
       "rollout.mode: one_step_off generates while it trains: give rollout a pool"},
      {"{train: 3}", three, "job.yaml:4: pools: expected a list of maps, got a map"},
  };
  for (const auto& [pools, overrides, message] : cases) {
    EXPECT_THAT(ErrorsOf(Load(pools, overrides)), HasSubstr(message)) << pools;
  }
}

}  // namespace
}  // namespace sluice
