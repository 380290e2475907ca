#include "common/config/rewards_from_spec.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/recipes.h"
#include "common/config/scalar.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice {
namespace {

using google::protobuf::Value;

std::string Json(const google::protobuf::Message& message) {
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json);
  return status.ok() ? json : "{}";
}

// An option as its user would write it; maps and lists as JSON.
std::string OptionText(const Value& value) {
  switch (value.kind_case()) {
    case Value::kStringValue:
      return value.string_value();
    case Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case Value::kNumberValue:
      return FormatNumber(value.number_value());
    default:
      return Json(value);
  }
}

// In the order of the names: a map has none of its own.
std::map<std::string, const Value*> Sorted(const google::protobuf::Struct& fields) {
  std::map<std::string, const Value*> sorted;
  for (const auto& [name, value] : fields.fields()) sorted[name] = &value;
  return sorted;
}

absl::StatusOr<RewardSpec> TermOf(const std::string& name, const Value& value) {
  if (!value.has_struct_value()) {
    return absl::InvalidArgumentError("expected a map of kind, weight and the kind's options");
  }
  RewardSpec term;
  term.name = name;
  for (const auto& [key, option] : Sorted(value.struct_value())) {
    if (key == "weight") {
      if (option->kind_case() != Value::kNumberValue) return absl::InvalidArgumentError("weight: expected a number");
      term.weight = option->number_value();
    } else if (key == "kind") {
      term.kind = OptionText(*option);
    } else {
      term.options[key] = OptionText(*option);
    }
  }
  if (term.kind.empty()) return absl::InvalidArgumentError("kind: is required: which reward it is");
  return term;
}

absl::Status CheckOne(const std::string& key, const RewardSpec& spec) {
  RETURN_IF_ERROR(Annotate(RewardOptionValues::Parse(spec).status(), key));
  const auto file = spec.options.find("path");
  if ((spec.kind == "python" || spec.kind == "model") && file != spec.options.end() &&
      !absl::StartsWith(file->second, "/")) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": path: ", file->second, " must be an absolute path"));
  }
  return absl::OkStatus();
}

}  // namespace

bool JudgesAnswers(const v1::RewardSpec& spec) {
  return spec.kind() != "none" || spec.terms().fields_size() > 0 || !spec.custom_reward_function().path().empty();
}

std::vector<RewardStage> RewardStagesOf(const v1::JobSpec& spec) {
  std::vector<RewardStage> stages;
  if (spec.recipe() == "dataflow") {
    for (int i = 0; i < spec.dataflow_size(); ++i) {
      const v1::StageSpec& stage = spec.dataflow(i);
      if (stage.op() != "reward") continue;
      RewardStage& own = stages.emplace_back(stage.stage(), absl::StrCat("dataflow[", i, "]."), stage.reward());
      if (stage.has_num_workers()) {
        own.reward.mutable_custom_reward_function()->set_num_workers(stage.num_workers());
      }
    }
    if (stages.size() > 1) return stages;
  }
  return {{stages.empty() ? std::string(kRewardStageOfRecipes) : stages[0].stage, "", spec.reward()}};
}

absl::StatusOr<std::vector<RewardSpec>> RewardsOfStage(const RewardStage& stage) {
  auto rewards = RewardsFromSpec(stage.reward);
  if (stage.prefix.empty()) return rewards;
  if (!rewards.ok()) return absl::InvalidArgumentError(absl::StrCat(stage.prefix, rewards.status().message()));
  for (RewardSpec& reward : *rewards) {
    reward.name = reward.name.empty() ? stage.stage : absl::StrCat(stage.stage, "/", reward.name);
  }
  return rewards;
}

bool JudgesAnswers(const v1::JobSpec& spec) {
  const std::vector<RewardStage> stages = RewardStagesOf(spec);
  return std::any_of(stages.begin(), stages.end(), [](const auto& stage) { return JudgesAnswers(stage.reward); });
}

bool HasRewardModel(const RewardStage& stage) {
  const auto rewards = RewardsOfStage(stage);
  return rewards.ok() &&
         std::any_of(rewards->begin(), rewards->end(), [](const auto& reward) { return reward.kind == "model"; });
}

std::vector<RewardModelFolder> RewardModelsOf(const v1::JobSpec& spec) {
  std::vector<RewardModelFolder> models;
  if (!IsPolicyRecipe(spec.recipe())) return models;
  for (const RewardStage& stage : RewardStagesOf(spec)) {
    const auto rewards = RewardsFromSpec(stage.reward);
    const auto named = RewardsOfStage(stage);
    if (!rewards.ok()) continue;
    for (size_t i = 0; i < rewards->size(); ++i) {
      const RewardSpec& reward = (*rewards)[i];
      if (reward.kind != "model") continue;
      const std::string key =
          reward.name.empty() ? "reward.options.path" : absl::StrCat("reward.terms.", reward.name, ".path");
      models.push_back({(*named)[i].label(), stage.prefix + key, reward.options.at("path")});
    }
  }
  return models;
}

absl::StatusOr<std::vector<RewardSpec>> RewardsFromSpec(const v1::RewardSpec& spec) {
  const v1::CustomRewardSpec& custom = spec.custom_reward_function();
  // `none` is a recipe's default, which gives way.
  const bool given_kind = (spec.kind() != "auto" && spec.kind() != "none") || spec.options().fields_size() > 0;
  if (!custom.path().empty()) {
    if (given_kind || spec.terms().fields_size() > 0) {
      return absl::InvalidArgumentError(
          "reward.custom_reward_function.path: is given beside reward.kind, options or terms; to add several rewards "
          "up, name it as a term of kind python");
    }
    RewardSpec python{.kind = "python", .name = "", .weight = 1.0, .options = {}};
    python.options = {{"path", custom.path()},
                      {"function", custom.name()},
                      {"kwargs", Json(custom.reward_kwargs())},
                      {"workers", absl::StrCat(custom.num_workers())},
                      {"timeout", absl::StrCat(FormatNumber(custom.timeout_s()), "s")}};
    RETURN_IF_ERROR(CheckOne("reward.custom_reward_function", python));
    return std::vector<RewardSpec>{python};
  }
  std::vector<RewardSpec> rewards;
  if (spec.terms().fields_size() > 0) {
    if (given_kind) {
      return absl::InvalidArgumentError("reward.kind: is given beside reward.terms; leave one of the two out");
    }
    for (const auto& [name, value] : Sorted(spec.terms())) {
      const std::string key = absl::StrCat("reward.terms.", name);
      auto term = TermOf(name, *value);
      RETURN_IF_ERROR(Annotate(term.status(), key));
      RETURN_IF_ERROR(CheckOne(key, *term));
      rewards.push_back(*std::move(term));
    }
    return rewards;
  }
  RewardSpec one{.kind = spec.kind(), .name = "", .weight = 1.0, .options = {}};
  for (const auto& [name, value] : spec.options().fields()) one.options[name] = OptionText(value);
  RETURN_IF_ERROR(CheckOne("reward", one));
  rewards.push_back(std::move(one));
  return rewards;
}

}  // namespace sluice
