#include "common/config/validate_dataflow.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/recipes.h"
#include "common/config/rewards_from_spec.h"
#include "common/config/scalar.h"
#include "common/config/stage_options.h"
#include "common/config/suggest.h"

namespace sluice {
namespace {

using Errors = std::vector<ConfigError>;

void Add(Errors* errors, const std::string& path, const std::string& message, std::vector<std::string> also = {}) {
  errors->push_back({"", 0, path, message, std::move(also)});
}

// What an op is to a graph.
struct OpRules {
  std::string model;               // that does it; empty: none
  bool model_optional = false;     // may be left out
  std::set<std::string> reads;     // ops whose results it can have as inputs
  std::vector<std::string> needs;  // of these, what there must be among its inputs or theirs
};

const std::map<std::string, OpRules>& Rules() {
  static const auto* const rules = new std::map<std::string, OpRules>{
      {"generate", {"actor", false, {}, {}}},
      {"reward", {"reward", true, {"generate"}, {"generate"}}},
      {"filter", {"actor", true, {"reward"}, {"reward"}}},
      {"logprob", {"actor", false, {"generate", "filter"}, {"generate"}}},
      {"ref_logprob", {"ref", false, {"generate", "filter"}, {"generate"}}},
      {"values", {"critic", false, {"generate", "filter"}, {"generate"}}},
      {"advantage", {"", false, {"reward", "filter", "logprob", "ref_logprob", "values"}, {"reward"}}},
      {"update_critic", {"critic", false, {"advantage"}, {"advantage"}}},
      {"update", {"actor", false, {"advantage", "update_critic"}, {"advantage"}}},
      {"evaluate", {"actor", false, {"update"}, {"update"}}},
      {"checkpoint", {"", false, {"update", "evaluate"}, {"update"}}}};
  return *rules;
}

// Whether a step may have several stages of this op: scores are added up.
bool MayRepeat(const std::string& op) { return op == "reward"; }

// Whether the op follows the steps, and is no part of them.
bool FollowsSteps(const std::string& op) { return op == "evaluate" || op == "checkpoint"; }

// A graph whose names are unique.
class Graph {
 public:
  explicit Graph(const std::vector<DataflowStage>& stages) : stages_(stages) {
    for (size_t i = 0; i < stages.size(); ++i) by_name_[stages[i].name] = i;
  }

  const DataflowStage* Find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &stages_[found->second];
  }

  // Names on a cycle, the first again at the end; empty: there is none.
  std::vector<std::string> Cycle() const {
    std::map<std::string, int> state;  // 1: on the way, 2: done
    std::vector<std::string> way, cycle;
    const std::function<bool(const DataflowStage&)> visit = [&](const DataflowStage& stage) {
      if (state[stage.name] == 2) return false;
      way.push_back(stage.name);
      if (state[stage.name] == 1) {
        cycle.assign(std::find(way.begin(), way.end(), stage.name), way.end());
        return true;
      }
      state[stage.name] = 1;
      for (const std::string& input : stage.inputs) {
        if (const DataflowStage* before = Find(input); before != nullptr && visit(*before)) return true;
      }
      state[stage.name] = 2;
      way.pop_back();
      return false;
    };
    for (const DataflowStage& stage : stages_) {
      if (visit(stage)) break;
    }
    std::reverse(cycle.begin(), cycle.end());  // from what is read to what reads it
    return cycle;
  }

  // Names of the stage's inputs, theirs, and so on. REQUIRES: no cycle.
  std::set<std::string> Before(const DataflowStage& stage) const {
    std::set<std::string> names;
    for (const std::string& input : stage.inputs) {
      const DataflowStage* before = Find(input);
      if (before == nullptr) continue;
      names.insert(before->name);
      names.merge(Before(*before));
    }
    return names;
  }

  // Null: there is no stage of this op.
  const DataflowStage* OfOp(const std::string& op) const {
    const auto found = std::find_if(stages_.begin(), stages_.end(), [&](const auto& stage) { return stage.op == op; });
    return found == stages_.end() ? nullptr : &*found;
  }

 private:
  const std::vector<DataflowStage>& stages_;
  std::map<std::string, size_t> by_name_;
};

void JudgeModel(const DataflowStage& stage, const OpRules& rules, const std::string& path, Errors* errors) {
  if (stage.model == rules.model || (stage.model.empty() && rules.model_optional)) return;
  if (rules.model.empty()) {
    return Add(errors, path, absl::StrCat(stage.op, " is done by no model; leave it out"));
  }
  Add(errors, path,
      stage.model.empty() ? absl::StrCat("is needed: ", stage.op, " is done by a model, ", rules.model)
                          : absl::StrCat(stage.op, " is done by ", rules.model, ", not by ", Quoted(stage.model)));
}

void JudgeInputs(const DataflowStage& stage, const OpRules& rules, const Graph& graph, const std::string& path,
                 const std::vector<DataflowStage>& stages, Errors* errors) {
  std::set<std::string> seen;
  for (const std::string& input : stage.inputs) {
    if (!seen.insert(input).second) {
      Add(errors, path, absl::StrCat(input, " is listed twice"));
      continue;
    }
    const DataflowStage* before = graph.Find(input);
    if (before == nullptr) {
      std::vector<std::string> names;
      for (const DataflowStage& other : stages) names.push_back(other.name);
      const auto nearest = Nearest(input, names);
      Add(errors, path,
          absl::StrCat("there is no stage ", Quoted(input),
                       nearest ? absl::StrCat(" (did you mean ", *nearest, "?)") : "", "; the stages are ",
                       absl::StrJoin(names, ", ")));
    } else if (rules.reads.empty()) {
      Add(errors, path,
          absl::StrCat(stage.op, " begins with the prompts and reads no other stage; leave ", input, " out"));
    } else if (const DataflowStage* filter = graph.OfOp("filter");
               filter != nullptr && rules.reads.contains("filter") &&
               (before->op == "generate" || before->op == "reward")) {
      Add(errors, path,
          absl::StrCat(stage.op, " cannot read ", input, ", of which ", filter->name, " leaves out a part; name ",
                       filter->name));
    } else if (!rules.reads.contains(before->op)) {
      Add(errors, path,
          absl::StrCat(stage.op, " cannot read ", input, ", which is of op ", before->op, "; it reads ",
                       absl::StrJoin(rules.reads, ", ")));
    }
  }
}

}  // namespace

bool IsStageName(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; });
}

Errors JudgeStages(const std::vector<DataflowStage>& stages, const std::string& path) {
  Errors errors;
  std::map<std::string, size_t> names, ops;
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string element = absl::StrCat(path, "[", i, "]");
    if (!IsStageName(stages[i].name) || stages[i].name == "weight_sync") {
      Add(&errors, element + ".stage",
          stages[i].name == "weight_sync"
              ? "weight_sync is the name of the stage that is there by itself where pools need it; take another"
              : absl::StrCat(Quoted(stages[i].name), " is not a stage's name: letters, digits, '_' and '-'"));
    }
    const auto [same_name, new_name] = names.emplace(stages[i].name, i);
    if (!new_name) {
      Add(&errors, element + ".stage",
          absl::StrCat(stages[i].name, " is the name of ", path, "[", same_name->second,
                       "] too: inputs could not tell them apart"));
    }
    const auto [same_op, new_op] = ops.emplace(stages[i].op, i);
    if (!new_op && !MayRepeat(stages[i].op)) {
      Add(&errors, element + ".op",
          absl::StrCat(stages[i].op, " is there twice, as ", stages[same_op->second].name, " and ", stages[i].name,
                       "; a step has one"));
    }
    if (!Rules().contains(stages[i].op))
      Add(&errors, element + ".op", absl::StrCat("unknown op ", Quoted(stages[i].op)));
  }
  if (!errors.empty()) return errors;

  const Graph graph(stages);
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string element = absl::StrCat(path, "[", i, "]");
    const OpRules& rules = Rules().at(stages[i].op);
    JudgeModel(stages[i], rules, element + ".model", &errors);
    JudgeInputs(stages[i], rules, graph, element + ".inputs", stages, &errors);
  }
  if (const std::vector<std::string> cycle = graph.Cycle(); !cycle.empty()) {
    Add(&errors, path,
        absl::StrCat("the stages ", absl::StrJoin(cycle, " -> "), " wait for each other; take one of the inputs away"));
  }
  for (const char* op : {"generate", "reward", "advantage", "update"}) {
    if (!ops.contains(op))
      Add(&errors, path, absl::StrCat("has no stage of op ", op, ", which a step cannot do without"));
  }
  if (!errors.empty()) return errors;

  for (size_t i = 0; i < stages.size(); ++i) {
    const std::set<std::string> before = graph.Before(stages[i]);
    std::vector<std::string> needs = Rules().at(stages[i].op).needs;
    if (ops.contains("filter") && Rules().at(stages[i].op).reads.contains("filter")) needs = {"filter"};
    for (const DataflowStage& needed : stages) {
      if (before.contains(needed.name) || std::find(needs.begin(), needs.end(), needed.op) == needs.end()) continue;
      Add(&errors, absl::StrCat(path, "[", i, "].inputs"),
          absl::StrCat(stages[i].op, " needs what ", needed.op, " makes: name ", needed.name));
    }
  }
  if (!errors.empty()) return errors;

  const DataflowStage& update = stages[ops.at("update")];
  const std::set<std::string> read = graph.Before(update);
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].op == "update" || FollowsSteps(stages[i].op) || read.contains(stages[i].name)) continue;
    Add(&errors, absl::StrCat(path, "[", i, "].stage"),
        absl::StrCat("nothing on the way to ", update.name, " reads ", stages[i].name, "; name it in the inputs of ",
                     stages[i].op == "update_critic" ? update.name : stages[ops.at("advantage")].name,
                     ", or leave it out"));
  }
  return errors;
}

namespace {

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
