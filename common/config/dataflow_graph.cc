#include "common/config/dataflow_graph.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/scalar.h"
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

bool FollowsSteps(const std::string& op) { return op == "evaluate" || op == "checkpoint"; }

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

}  // namespace sluice
