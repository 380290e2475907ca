#include "common/config/validate.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/frequency.h"
#include "common/config/recipes.h"
#include "common/config/scalar.h"
#include "common/config/schedule_from_spec.h"
#include "common/config/schema.h"
#include "common/config/steps.h"
#include "common/config/validate_dataflow.h"
#include "common/config/validate_pools.h"
#include "common/config/validate_recipes.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

using Errors = std::vector<ConfigError>;

void Add(Errors* errors, const std::string& path, const std::string& message, std::vector<std::string> also = {}) {
  errors->push_back({"", 0, path, message, std::move(also)});
}

// --- the table's own rules, for specifications that no reader has checked ---

void CheckText(const Key& key, const std::string& value, const std::string& path, Errors* errors) {
  const auto& choices = key.options.choices();
  // Exact here: only the reader may accept another case, and it stores the exact choice.
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
    Add(errors, path, absl::StrCat("expected one of ", absl::StrJoin(choices, ", "), ", got ", Quoted(value)));
  }
}

void CheckNumber(const Key& key, double value, const std::string& path, Errors* errors) {
  if (const absl::Status status = CheckBounds(value, key.options); !status.ok()) {
    Add(errors, path, std::string(status.message()));
  }
}

void CheckElements(const Key& key, const Message& section, const std::string& own_path, Errors* errors) {
  const auto* reflection = section.GetReflection();
  const int count = reflection->FieldSize(section, key.field);
  const bool too_few = key.options.has_min_items() && count < key.options.min_items();
  const bool too_many = key.options.has_max_items() && count > key.options.max_items();
  if (too_few || too_many) Add(errors, own_path, absl::StrCat("has ", count, " elements (", RulesText(key), ")"));
  for (int i = 0; i < count; ++i) {
    const std::string path = absl::StrCat(own_path, "[", i, "]");
    if (key.type == Key::Type::kTextList) {
      CheckText(key, reflection->GetRepeatedString(section, key.field, i), path, errors);
    } else {
      CheckNumber(key, reflection->GetRepeatedDouble(section, key.field, i), path, errors);
    }
  }
}

void CheckKey(const Key& key, const Message& section, const std::string& path, Errors* errors) {
  const auto* reflection = section.GetReflection();
  if (key.field->is_repeated()) return CheckElements(key, section, path, errors);
  if (key.nullable() && !reflection->HasField(section, key.field)) return;
  switch (key.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string value = reflection->GetString(section, key.field);
      if (key.options.required() && value.empty()) return Add(errors, path, RequiredMessage(key));
      return CheckText(key, value, path, errors);
    }
    case FieldDescriptor::CPPTYPE_INT32:
      return CheckNumber(key, reflection->GetInt32(section, key.field), path, errors);
    case FieldDescriptor::CPPTYPE_INT64:
      return CheckNumber(key, static_cast<double>(reflection->GetInt64(section, key.field)), path, errors);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CheckNumber(key, reflection->GetDouble(section, key.field), path, errors);
    default:
      return;
  }
}

// An element of a list of maps; of its sections those that are there.
void CheckListElement(const Message& message, const std::string& path, Errors* errors) {
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const std::string below = absl::StrCat(path, ".", field->name());
    if (!IsSection(field)) {
      CheckKey(*Schema::Get().Find(field), message, below, errors);
    } else if (reflection->HasField(message, field)) {
      CheckListElement(reflection->GetMessage(message, field), below, errors);
    }
  }
}

void CheckTable(const v1::JobSpec& spec, Errors* errors) {
  const RecipeKind kind = KindOfRecipe(spec.recipe());
  for (const Section& section : Schema::Get().sections()) {
    if (section.in_list()) continue;
    for (const Key& key : section.keys) {
      if (key.IsFor(kind)) CheckKey(key, SectionOf(spec, section), key.path, errors);
    }
  }
  if (kind != RecipeKind::kPolicy) return;
  for (int i = 0; i < spec.dataflow_size(); ++i) {
    CheckListElement(spec.dataflow(i), absl::StrCat("dataflow[", i, "]"), errors);
  }
  for (int i = 0; i < spec.pools_size(); ++i) {
    CheckListElement(spec.pools(i), absl::StrCat("pools[", i, "]"), errors);
  }
}

// --- rules across keys; each is judged only where the table's rules hold for what it reads ---

void CheckName(const v1::JobSpec& spec, Errors* errors) {
  constexpr size_t kLongest = 63;
  const std::string& name = spec.name();
  const auto allowed = [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; };
  if (name.empty() || name.size() > kLongest || !absl::ascii_isalnum(name[0]) ||
      !std::all_of(name.begin(), name.end(), allowed)) {
    Add(errors, "name",
        absl::StrCat(Quoted(name),
                     " is not a job name: letters, digits, '.', '_' and '-', beginning with a "
                     "letter or digit, at most ",
                     kLongest, " characters"));
  }
}

std::optional<int64_t> TotalStepsOf(const v1::JobSpec& spec, const JobFacts& facts) {
  if (spec.trainer().has_total_training_steps()) return spec.trainer().total_training_steps();
  if (!facts.train_rows || spec.data().train_batch_size() < 1) return std::nullopt;
  const int64_t rows = TrainRows(spec.data(), *facts.train_rows);
  return TotalSteps(spec.trainer(), StepsPerEpoch(rows, spec.data().train_batch_size()));
}

void CheckFrequencies(const v1::TrainerSpec& trainer, Errors* errors) {
  if (const auto save = ParseFrequency(trainer.save_freq()); !save.ok()) {
    Add(errors, "trainer.save_freq", std::string(save.status().message()));
  }
  if (const auto test = ParseFrequency(trainer.test_freq()); !test.ok()) {
    Add(errors, "trainer.test_freq", std::string(test.status().message()));
  }
}

void CheckWorld(const v1::JobSpec& spec, Errors* errors) {
  const int64_t nodes = spec.trainer().nnodes(), per_node = spec.trainer().n_gpus_per_node();
  const int64_t world = nodes * per_node;
  // Each pool is a world of its own to a batch.
  if (nodes < 1 || per_node < 1 || (IsPolicyRecipe(spec.recipe()) && !spec.pools().empty())) return;
  if (spec.engine().has_dp_size() && spec.engine().dp_size() >= 1 && spec.engine().dp_size() != world) {
    Add(errors, "engine.dp_size",
        absl::StrCat(spec.engine().dp_size(), " data-parallel ranks do not match the world size: trainer.nnodes ",
                     nodes, " * trainer.n_gpus_per_node ", per_node, " = ", world,
                     " (leave dp_size out, or make both equal)"),
        {"trainer.nnodes", "trainer.n_gpus_per_node"});
    return;  // which of the two the batch should divide by is not known
  }
  const int64_t batch = spec.data().train_batch_size();
  if (batch < 1 || batch % world == 0) return;
  const int64_t below = batch / world * world;
  Add(errors, "data.train_batch_size",
      absl::StrCat(batch, " rows do not divide by ", world, " ranks (", batch, " = ", batch / world, " * ", world,
                   " + ", batch % world, "); use ", below > 0 ? absl::StrCat(below, " or ") : "", below + world),
      {"trainer.nnodes", "trainer.n_gpus_per_node", "engine.dp_size"});
}

void CheckLengths(const v1::JobSpec& spec, Errors* errors) {
  const v1::DataSpec& data = spec.data();
  if (!LearnsGivenTexts(spec.recipe())) return;
  if (data.max_length() <= data.max_token_len_per_gpu()) return;
  Add(errors, "data.max_length",
      absl::StrCat("a row of ", data.max_length(),
                   " tokens does not fit into a micro-batch of data.max_token_len_per_gpu ",
                   data.max_token_len_per_gpu(), "; lower the first or raise the second"),
      {"data.max_token_len_per_gpu"});
}

void CheckResume(const v1::TrainerSpec& trainer, Errors* errors) {
  const bool by_path = trainer.resume_mode() == "resume_path";
  if (by_path && trainer.resume_from_path().empty()) {
    Add(errors, "trainer.resume_from_path", "is needed by trainer.resume_mode resume_path: the global_step_N folder",
        {"trainer.resume_mode"});
  }
  if (!by_path && !trainer.resume_from_path().empty()) {
    Add(errors, "trainer.resume_from_path",
        absl::StrCat("has no effect with trainer.resume_mode ", trainer.resume_mode(),
                     "; set resume_mode: resume_path"),
        {"trainer.resume_mode"});
  }
}

void CheckBest(const v1::JobSpec& spec, Errors* errors) {
  const v1::CheckpointSpec& checkpoint = spec.checkpoint();
  if (checkpoint.best_metric().empty()) {
    if (checkpoint.best_mode() != "auto") {
      Add(errors, "checkpoint.best_mode", "has no effect without checkpoint.best_metric", {"checkpoint.best_metric"});
    }
    return;
  }
  if (!absl::StartsWith(checkpoint.best_metric(), "val/")) {
    Add(errors, "checkpoint.best_metric",
        absl::StrCat(Quoted(checkpoint.best_metric()),
                     " is no number of a validation: their names begin with val/, such as val/loss and "
                     "val/score/mean"));
  } else if (spec.data().val_files().empty()) {
    Add(errors, "checkpoint.best_metric", "is a number of a validation, and data.val_files is empty",
        {"data.val_files"});
  } else if (checkpoint.save_contents().empty()) {
    Add(errors, "checkpoint.best_metric", "compares checkpoints, and checkpoint.save_contents is empty",
        {"checkpoint.save_contents"});
  }
}

void CheckSchedule(const v1::JobSpec& spec, const JobFacts& facts, Errors* errors) {
  const v1::OptimSpec& optim = spec.optim();
  if (optim.lr_scheduler_type() == "WSD" && optim.lr_wsd_decay_steps() < 1) {
    return Add(errors, "optim.lr_wsd_decay_steps",
               "is needed by optim.lr_scheduler_type WSD: the steps of the final decay", {"optim.lr_scheduler_type"});
  }
  const std::optional<int64_t> total_steps = TotalStepsOf(spec, facts);
  const auto schedule = Schedule::Create(ScheduleFromSpec(optim), total_steps.value_or(kLongRun));
  if (schedule.ok() || (total_steps && *total_steps < 1)) return;
  const std::string message(schedule.status().message());
  const size_t colon = message.find(": ");
  Add(errors, message.substr(0, colon), message.substr(colon + 2),
      {"trainer.total_training_steps", "trainer.total_epochs", "data.train_batch_size", "optim.lr_scheduler_type",
       "optim.lr_warmup_steps", "optim.lr_warmup_steps_ratio", "optim.lr_wsd_decay_steps", "optim.weight_decay",
       "optim.start_weight_decay", "optim.end_weight_decay", "optim.wd_incr_style"});
}

void CheckRows(const v1::JobSpec& spec, const JobFacts& facts, Errors* errors) {
  if (spec.data().train_max_samples() == 0) {
    Add(errors, "data.train_max_samples", "0 rows leave nothing to train on; -1 means all");
  } else if (facts.train_rows && *facts.train_rows < 1) {
    Add(errors, "data.train_files", "hold no row to train on");
  }
}

void CheckContents(const v1::JobSpec& spec, Errors* errors) {
  const auto& contents = spec.checkpoint().save_contents();
  for (auto it = contents.begin(); it != contents.end(); ++it) {
    if (std::find(contents.begin(), it, *it) != it) {
      Add(errors, "checkpoint.save_contents", absl::StrCat(*it, " is listed twice"));
    }
  }
  if (spec.engine().forward_only() && spec.data().val_files().empty()) {
    Add(errors, "engine.forward_only", "only evaluates, but data.val_files is empty", {"data.val_files"});
  }
}

}  // namespace

std::vector<ConfigError> ValidateJobSpec(const v1::JobSpec& spec, const JobFacts& facts) {
  Errors errors;
  CheckTable(spec, &errors);
  const size_t table_errors = errors.size();
  CheckName(spec, &errors);
  CheckFrequencies(spec.trainer(), &errors);
  CheckWorld(spec, &errors);
  CheckLengths(spec, &errors);
  AddRecipeErrors(spec, TotalStepsOf(spec, facts), &errors);
  AddDataflowErrors(spec, &errors);
  AddPoolErrors(spec, &errors);
  CheckResume(spec.trainer(), &errors);
  CheckBest(spec, &errors);
  CheckRows(spec, facts, &errors);
  CheckSchedule(spec, facts, &errors);
  CheckContents(spec, &errors);

  // A rule over a key that is itself out of bounds says nothing new.
  const auto without_index = [](const std::string& path) { return path.substr(0, path.find('[')); };
  const auto out_of_bounds = [&](const std::string& path) {
    return std::any_of(errors.begin(), errors.begin() + static_cast<ptrdiff_t>(table_errors),
                       [&](const ConfigError& error) { return without_index(error.path) == without_index(path); });
  };
  Errors kept(errors.begin(), errors.begin() + static_cast<ptrdiff_t>(table_errors));
  for (size_t i = table_errors; i < errors.size(); ++i) {
    const auto& also = errors[i].also_involves;
    if (!out_of_bounds(errors[i].path) && std::none_of(also.begin(), also.end(), out_of_bounds))
      kept.push_back(errors[i]);
  }
  return kept;
}

}  // namespace sluice
