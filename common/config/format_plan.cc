#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/plan.h"
#include "common/config/readable.h"

namespace sluice {
namespace {

std::string Pad(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

std::string Describe(const Plan::Model& model) {
  std::string text = absl::StrCat(model.architecture, ", ", FormatCount(model.parameters), " parameters");
  if (model.score_head > 0) {
    absl::StrAppend(&text, ", ", FormatCount(model.score_head), " of them the head: one number a token");
  }
  return text;
}

nlohmann::ordered_json ModelJson(const Plan::Model& model) {
  return {{"architecture", model.architecture},
          {"parameters", model.parameters},
          {"score_head_parameters", model.score_head}};
}

std::string MicroBatches(const Plan& plan) {
  if (plan.expected_micro_batches) {
    return absl::StrCat(FormatOneDecimal(*plan.expected_micro_batches), " expected, at most ",
                        FormatCount(plan.most_micro_batches));
  }
  return absl::StrCat("at most ", FormatCount(plan.most_micro_batches));
}

std::string Ranks(const Pool& pool) {
  if (pool.ranks == 1) return absl::StrCat("rank ", pool.first_rank);
  return absl::StrCat("ranks ", pool.first_rank, " to ", pool.first_rank + pool.ranks - 1);
}

std::vector<std::string> RolesOf(const Pool& pool) {
  std::vector<std::string> roles;
  if (pool.actor) roles.push_back("actor");
  if (pool.rollout) roles.push_back("rollout");
  if (pool.reference) roles.push_back("ref");
  return roles;
}

template <typename T>
std::string CountOr(const std::optional<T>& value, const char* absent) {
  return value ? FormatCount(static_cast<int64_t>(*value)) : absent;
}

template <typename T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

std::string FormatPlan(const Plan& plan) {
  constexpr size_t kLabel = 28;
  constexpr const char* kUnknown = "unknown until the rows are counted";
  std::string out;
  const auto row = [&](const std::string& label, const std::string& value) {
    absl::StrAppend(&out, "  ", Pad(label, kLabel), value, "\n");
  };
  absl::StrAppend(&out, plan.name, " (", plan.recipe, ")\n");
  row("model", Describe(plan.model));
  if (plan.critic.has_value()) row("critic", Describe(*plan.critic));
  row("device", plan.device);
  row("ranks", absl::StrCat(plan.ranks, " (", plan.nodes, " node(s) x ", plan.ranks_per_node, ")"));
  row(absl::StrCat(plan.rows_are, " per step"),
      absl::StrCat(FormatCount(plan.rows_per_step), " (", FormatCount(plan.rows_per_rank), " per rank)"));
  if (plan.dataflow.empty()) {
    row("tokens per step", CountOr(plan.tokens_per_step, "unknown until the rows are tokenised"));
  } else {
    row("answers per step", FormatCount(plan.answers_per_step));
    row("updates per step", FormatCount(plan.updates_per_step));
  }
  row("token slots per micro-batch", FormatCount(plan.token_slots));
  row("micro-batches per step", absl::StrCat(MicroBatches(plan), " (per rank)"));
  row("training rows", CountOr(plan.train_rows, kUnknown));
  row("steps per epoch", CountOr(plan.steps_per_epoch, kUnknown));
  row("steps in all", CountOr(plan.total_steps, kUnknown));
  row("validation", plan.validation.empty() ? "never: data.val_files is empty" : plan.validation);
  row("checkpoints", plan.checkpoints);
  if (!plan.dataflow.empty()) out += "\n  data flow of a step\n";
  const bool several_pools = plan.pools.size() > 1;
  for (const DataflowStage& stage : plan.dataflow) {
    const std::string from = stage.inputs.empty() ? "" : absl::StrCat("<- ", absl::StrJoin(stage.inputs, ", "));
    const std::string pool = several_pools ? Pad(stage.pool, 12) : "";
    row(absl::StrCat("  ", stage.name),
        absl::StrCat(Pad(stage.op, 14), pool, Pad(stage.model, from.empty() ? stage.model.size() : 8), from));
  }
  if (several_pools) absl::StrAppend(&out, "\n  pools (rollout.mode ", plan.mode, ")\n");
  for (const Pool& pool : plan.pools) {
    if (several_pools)
      row(absl::StrCat("  ", pool.name), absl::StrCat(Ranks(pool), ": ", absl::StrJoin(RolesOf(pool), ", ")));
  }
  if (!plan.curve.empty()) {
    absl::StrAppend(&out, "\n  ", Pad("step", 10), Pad("", 18), Pad("learning rate", 16), "weight decay\n");
    for (const Plan::CurvePoint& point : plan.curve) {
      absl::StrAppend(&out, "  ", Pad(FormatCount(point.step), 10), Pad(point.label, 18),
                      Pad(FormatRate(point.learning_rate), 16), FormatRate(point.weight_decay), "\n");
    }
  }
  absl::StrAppend(&out, "\n  memory per rank on ", plan.memory_device, " (estimate)\n");
  for (const Plan::Memory& part : plan.memory) {
    row(absl::StrCat("  ", part.part), absl::StrCat(Pad(FormatBytes(part.bytes), 14), part.how));
  }
  row("  in all", FormatBytes(TotalMemoryBytes(plan)));
  if (!plan.notes.empty()) out += "\n";
  for (const std::string& note : plan.notes) absl::StrAppend(&out, "  - ", note, "\n");
  return out;
}

std::string PlanJson(const Plan& plan) {
  using Json = nlohmann::ordered_json;
  Json json = {{"name", plan.name},
               {"recipe", plan.recipe},
               {"device", plan.device},
               {"architecture", plan.model.architecture},
               {"parameters", plan.model.parameters},
               {"score_head_parameters", plan.model.score_head},
               {"critic", plan.critic.has_value() ? ModelJson(*plan.critic) : nlohmann::ordered_json()},
               {"nodes", plan.nodes},
               {"ranks_per_node", plan.ranks_per_node},
               {"ranks", plan.ranks},
               {"rows_are", plan.rows_are},
               {"rows_per_step", plan.rows_per_step},
               {"rows_per_rank", plan.rows_per_rank},
               {"token_slots_per_micro_batch", plan.token_slots},
               {"tokens_per_step", OrNull(plan.tokens_per_step)},
               {"expected_micro_batches_per_step", OrNull(plan.expected_micro_batches)},
               {"most_micro_batches_per_step", plan.most_micro_batches},
               {"train_rows", OrNull(plan.train_rows)},
               {"steps_per_epoch", OrNull(plan.steps_per_epoch)},
               {"total_steps", OrNull(plan.total_steps)},
               {"validation", plan.validation},
               {"checkpoints", plan.checkpoints}};
  json["schedule"] = Json::array();
  for (const Plan::CurvePoint& point : plan.curve) {
    json["schedule"].push_back({{"step", point.step},
                                {"label", point.label},
                                {"learning_rate", point.learning_rate},
                                {"weight_decay", point.weight_decay}});
  }
  if (!plan.dataflow.empty()) {
    json["answers_per_step"] = plan.answers_per_step;
    json["updates_per_step"] = plan.updates_per_step;
    json["dataflow"] = Json::array();
    for (const DataflowStage& stage : plan.dataflow) {
      json["dataflow"].push_back({{"stage", stage.name},
                                  {"op", stage.op},
                                  {"model", stage.model},
                                  {"inputs", stage.inputs},
                                  {"pool", stage.pool},
                                  {"beside", stage.beside}});
    }
    json["pools"] = Json::array();
    for (const Pool& pool : plan.pools) {
      json["pools"].push_back(
          {{"pool", pool.name}, {"first_rank", pool.first_rank}, {"ranks", pool.ranks}, {"roles", RolesOf(pool)}});
    }
    if (!plan.mode.empty()) json["mode"] = plan.mode;
  }
  json["memory_device"] = plan.memory_device;
  json["memory_bytes_per_rank"] = Json::object();
  for (const Plan::Memory& part : plan.memory) json["memory_bytes_per_rank"][part.part] = part.bytes;
  json["memory_bytes_per_rank"]["total"] = TotalMemoryBytes(plan);
  json["notes"] = plan.notes;
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace sluice
