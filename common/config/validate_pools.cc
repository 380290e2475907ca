#include "common/config/validate_pools.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/dataflow_graph.h"
#include "common/config/pools.h"
#include "common/config/recipes.h"
#include "common/config/rewards_from_spec.h"
#include "common/config/scalar.h"

namespace sluice {
namespace {

using Errors = std::vector<ConfigError>;

void Add(Errors* errors, const std::string& path, const std::string& message, std::vector<std::string> also = {}) {
  errors->push_back({"", 0, path, message, std::move(also)});
}

void CheckWorkers(const v1::JobSpec& spec, Errors* errors) {
  const std::vector<DataflowStage> stages = DataflowOf(spec);
  for (int i = 0; i < spec.dataflow_size(); ++i) {
    const v1::StageSpec& listed = spec.dataflow(i);
    if (!listed.has_num_workers() || listed.op() == "reward") continue;
    const auto stage = std::find_if(stages.begin(), stages.end(),
                                    [&](const DataflowStage& other) { return other.name == listed.stage(); });
    if (stage == stages.end()) continue;
    const std::vector<Pool> pools = PoolsOf(spec);
    const auto pool =
        std::find_if(pools.begin(), pools.end(), [&](const Pool& other) { return other.name == stage->pool; });
    if (pool->ranks == listed.num_workers()) continue;
    Add(errors, absl::StrCat("dataflow[", i, "].num_workers"),
        absl::StrCat(listed.num_workers(), " ranks are asked for, and ",
                     spec.pools().empty()
                         ? absl::StrCat("the job has ", pool->ranks,
                                        "; change trainer.n_gpus_per_node, or give its model a "
                                        "pool of its own under pools")
                         : absl::StrCat("pool ", pool->name, " has ", pool->ranks, "; change its ranks")),
        {"trainer.nnodes", "trainer.n_gpus_per_node", "pools"});
  }
}

void CheckPoolList(const v1::JobSpec& spec, Errors* errors) {
  std::map<std::string, int> names, roles;
  int64_t ranks = 0;
  for (int i = 0; i < spec.pools_size(); ++i) {
    const v1::PoolSpec& pool = spec.pools(i);
    const std::string path = absl::StrCat("pools[", i, "]");
    if (!IsStageName(pool.pool())) {
      Add(errors, path + ".pool",
          absl::StrCat(Quoted(pool.pool()), " is not a pool's name: letters, digits, '_' and '-'"));
    }
    if (const auto [same, is_new] = names.emplace(pool.pool(), i); !is_new) {
      Add(errors, path + ".pool", absl::StrCat(pool.pool(), " is the name of pools[", same->second, "] too"));
    }
    for (const std::string& role : pool.roles()) {
      if (const auto [same, is_new] = roles.emplace(role, i); !is_new) {
        Add(errors, path + ".roles",
            absl::StrCat(role, " is placed on ", spec.pools(same->second).pool(), " already; a role has one pool"));
      }
    }
    ranks += pool.ranks();
    if (pool.roles_size() == 1 && pool.roles(0) == "ref" && !NeedsReference(spec)) {
      Add(errors, path + ".roles",
          "ref has nothing to do without algorithm.use_kl_in_reward or actor.use_kl_loss: the pool would be idle",
          {"algorithm.use_kl_in_reward", "actor.use_kl_loss"});
    }
  }
  for (const char* role : {"actor", "rollout"}) {
    if (!roles.contains(role)) Add(errors, "pools", absl::StrCat("no pool has the role ", role, "; name it in one"));
  }
  const int64_t world = int64_t{spec.trainer().nnodes()} * spec.trainer().n_gpus_per_node();
  if (ranks != world) {
    Add(errors, "pools",
        absl::StrCat("have ", ranks, " ranks together, but trainer.nnodes ", spec.trainer().nnodes(),
                     " * trainer.n_gpus_per_node ", spec.trainer().n_gpus_per_node(), " = ", world,
                     "; make them equal"),
        {"trainer.nnodes", "trainer.n_gpus_per_node"});
  }
  if (spec.engine().forward_only()) {
    Add(errors, "pools", "do nothing with engine.forward_only, which trains nothing; leave them out",
        {"engine.forward_only"});
  }
}

void CheckPoolsAgainstKeys(const v1::JobSpec& spec, Errors* errors) {
  const std::vector<Pool> pools = PoolsOf(spec);
  const int64_t batch = spec.data().train_batch_size();
  for (const Pool& pool : pools) {
    if (batch < 1 || batch % pool.ranks == 0) continue;
    Add(errors, "data.train_batch_size",
        absl::StrCat(batch, " rows do not divide by the ", pool.ranks, " ranks of pool ", pool.name, "; use ",
                     (batch / pool.ranks + 1) * pool.ranks),
        {"pools"});
  }
  const Pool& actor = ActorPool(pools);
  if (spec.engine().has_dp_size() && spec.engine().dp_size() != actor.ranks) {
    Add(errors, "engine.dp_size",
        absl::StrCat(spec.engine().dp_size(), " data-parallel ranks do not match the ", actor.ranks, " of pool ",
                     actor.name, ", which trains; leave dp_size out, or make both equal"),
        {"pools"});
  }
  if (!JudgesAnswers(spec) && NeedsReference(spec) && !spec.data().val_files().empty() &&
      !(RolloutPool(pools).reference)) {
    Add(errors, "pools",
        absl::StrCat(
            "without a reward, validation compares answers with the reference model, where they are generated: "
            "place ref on ",
            RolloutPool(pools).name),
        {"reward.kind", "data.val_files"});
  }
}

}  // namespace

void AddPoolErrors(const v1::JobSpec& spec, Errors* errors) {
  if (!IsPolicyRecipe(spec.recipe())) return;
  const size_t before = errors->size();
  if (!spec.pools().empty()) CheckPoolList(spec, errors);
  if (errors->size() > before) return;
  if (!spec.pools().empty()) CheckPoolsAgainstKeys(spec, errors);
  if (spec.rollout().mode() != "sync" && !RolloutIsSeparate(spec)) {
    Add(errors, "rollout.mode",
        absl::StrCat(spec.rollout().mode(),
                     " generates while it trains: give rollout a pool of its own, other than the actor's, under pools"),
        {"pools"});
  }
  if (spec.recipe() == "dataflow" && JudgeStages(ListedStages(spec), "dataflow").empty()) CheckWorkers(spec, errors);
}

}  // namespace sluice
