#include "common/config/validate_dataflow.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/dataflow.h"
#include "common/config/dataflow_graph.h"
#include "common/config/recipes.h"
#include "common/config/rewards_from_spec.h"
#include "common/config/scalar.h"
#include "common/config/stage_options.h"

namespace sluice {
namespace {

using Errors = std::vector<ConfigError>;

void Add(Errors* errors, const std::string& path, const std::string& message, std::vector<std::string> also = {}) {
  errors->push_back({"", 0, path, message, std::move(also)});
}

// Of several stages that score each has a section of its own, and the job has none beside them.
void CheckRewardSections(const v1::JobSpec& spec, Errors* errors) {
  const std::vector<RewardStage> scoring = RewardStagesOf(spec);
  if (scoring.size() < 2) return;
  std::vector<std::string> names;
  for (const RewardStage& stage : scoring) names.push_back(stage.stage);
  for (int i = 0; i < spec.dataflow_size(); ++i) {
    if (spec.dataflow(i).op() != "reward" || spec.dataflow(i).has_reward()) continue;
    Add(errors, absl::StrCat("dataflow[", i, "].reward"),
        absl::StrCat("is needed: of several stages of op reward (", absl::StrJoin(names, ", "), ") each has its own"));
  }
  const v1::RewardSpec& section = spec.reward();
  if (section.kind() == "auto" && section.options().fields().empty() && section.terms().fields().empty() &&
      section.custom_reward_function().path().empty()) {
    return;
  }
  Add(errors, "reward",
      absl::StrCat("does nothing beside several stages of op reward (", absl::StrJoin(names, ", "),
                   "), each of which has its own; leave it out"),
      {"reward.kind", "reward.terms", "reward.custom_reward_function.path"});
}

// Options of a stage that its op does not have, and options that disagree with the keys they stand for.
void CheckOptions(const v1::JobSpec& spec, Errors* errors) {
  for (int i = 0; i < spec.dataflow_size(); ++i) {
    const v1::StageSpec& stage = spec.dataflow(i);
    const auto only = [&](bool given, const char* option, std::vector<std::string> ops) {
      if (!given || std::find(ops.begin(), ops.end(), stage.op()) != ops.end()) return;
      Add(errors, absl::StrCat("dataflow[", i, "].", option),
          absl::StrCat("does nothing for op ", stage.op(), "; it is an option of ", absl::StrJoin(ops, " and ")));
    };
    only(stage.has_sampling(), "sampling", {"generate"});
    only(stage.has_reward(), "reward", {"reward"});
    only(stage.has_sync(), "sync", {"reward"});
    only(stage.has_metric(), "metric", {"filter"});
    only(stage.has_max_num_gen_batches(), "max_num_gen_batches", {"filter"});
    only(stage.has_every(), "every", {"evaluate", "checkpoint"});
    only(stage.has_estimator(), "estimator", {"advantage"});
    only(stage.has_batch_size(), "batch_size", {"update", "update_critic"});
    only(stage.has_grad_accum_steps(), "grad_accum_steps", {"update", "update_critic"});
    if (stage.has_num_workers() && FollowsSteps(stage.op())) {
      Add(errors, absl::StrCat("dataflow[", i, "].num_workers"),
          absl::StrCat("does nothing for op ", stage.op(), ", which has its ranks from pools"));
    }
    if (stage.has_grad_accum_steps() && !stage.has_batch_size()) {
      Add(errors, absl::StrCat("dataflow[", i, "].grad_accum_steps"), "needs batch_size: the batches that it adds up");
    }
    for (const RewardStage& scoring : RewardStagesOf(spec)) {
      if (scoring.stage != stage.stage() || !stage.has_sync() || stage.sync() || !HasRewardModel(scoring)) continue;
      Add(errors, absl::StrCat("dataflow[", i, "].sync"),
          "cannot be false: a reward model computes on the device, as the stages beside it would");
    }
  }
  CheckRewardSections(spec, errors);
  for (const StageOption& option : StageOptionsOf(spec)) {
    if (Agrees(option, spec)) continue;
    Add(errors, option.path,
        absl::StrCat("stands for ", option.key, ", which says something else; leave one of them out"), {option.key});
  }
}

// Stages that the keys ask for, and stages that no key asks for.
void CheckAgainstKeys(const v1::JobSpec& spec, Errors* errors) {
  std::map<std::string, int> ops;
  for (int i = 0; i < spec.dataflow_size(); ++i) ops[spec.dataflow(i).op()] = i;
  const auto want = [&](const char* op, bool wanted, const std::string& because, const std::string& otherwise,
                        std::vector<std::string> keys) {
    if (wanted && !ops.contains(op))
      Add(errors, "dataflow", absl::StrCat("has no stage of op ", op, ", which ", because), keys);
    if (!wanted && ops.contains(op))
      Add(errors, absl::StrCat("dataflow[", ops[op], "].op"), absl::StrCat(op, " ", otherwise), keys);
  };
  const std::vector<std::string> reference = {"algorithm.use_kl_in_reward", "actor.use_kl_loss"};
  want("ref_logprob", NeedsReference(spec) || (spec.engine().forward_only() && ops.contains("ref_logprob")),
       "algorithm.use_kl_in_reward and actor.use_kl_loss need",
       "does nothing without algorithm.use_kl_in_reward or actor.use_kl_loss", reference);
  for (const char* op : {"values", "update_critic"}) {
    want(op, NeedsCritic(spec), "algorithm.adv_estimator gae needs",
         absl::StrCat("does nothing with algorithm.adv_estimator ", spec.algorithm().adv_estimator(),
                      ", which needs no critic; gae does"),
         {"algorithm.adv_estimator"});
  }
  if (FiltersGroups(spec) && !ops.contains("filter")) {
    Add(errors, "dataflow", "has no stage of op filter, which algorithm.filter_groups.enable asks for",
        {"algorithm.filter_groups.enable"});
  }
  if (ops.contains("evaluate") && spec.data().val_files().empty()) {
    Add(errors, absl::StrCat("dataflow[", ops["evaluate"], "].op"), "evaluate has no data: data.val_files is empty",
        {"data.val_files"});
  }
  const v1::RolloutCorrectionSpec& correction = spec.algorithm().rollout_correction();
  if (!ops.contains("logprob") && (correction.rollout_is() != "none" || correction.rollout_rs() != "none")) {
    Add(errors, "dataflow",
        "has no stage of op logprob, whose results algorithm.rollout_correction compares with those of the rollout",
        {"algorithm.rollout_correction.rollout_is", "algorithm.rollout_correction.rollout_rs"});
  }
}

}  // namespace

void AddDataflowErrors(const v1::JobSpec& spec, Errors* errors) {
  if (!IsPolicyRecipe(spec.recipe())) return;
  if (spec.recipe() != "dataflow") {
    if (!spec.dataflow().empty()) {
      Add(errors, "dataflow",
          absl::StrCat("does nothing with recipe ", spec.recipe(), ", which has its own stages; set recipe: dataflow"),
          {"recipe"});
    }
    return;
  }
  if (spec.dataflow().empty()) {
    return Add(errors, "dataflow", "is needed by recipe dataflow: the list of the stages of a step", {"recipe"});
  }
  const Errors graph = JudgeStages(ListedStages(spec), "dataflow");
  errors->insert(errors->end(), graph.begin(), graph.end());
  CheckOptions(spec, errors);
  if (!graph.empty()) return;
  CheckAgainstKeys(spec, errors);
}

}  // namespace sluice
