#include "common/config/plan_notes.h"

#include "absl/strings/str_cat.h"
#include "common/config/readable.h"

namespace sluice {
namespace {

using Notes = std::vector<std::string>;

void NotesOnEngine(const v1::JobSpec& spec, const Plan& plan, Notes* notes) {
  const v1::EngineSpec& engine = spec.engine();
  if (engine.device() == "auto")
    notes->push_back("engine.device auto: cuda where the worker has a usable GPU, else cpu");
  if (engine.model_dtype() == "bf16") {
    notes->push_back(
        "engine.model_dtype bf16: weights and activations in bf16; gradients, moments and master weights in fp32");
  } else {
    notes->push_back("engine.model_dtype fp32: everything in fp32; the weights are their own master copy");
  }
  if (plan.ranks > 1) {
    notes->push_back(absl::StrCat("engine.distributed_strategy ddp: each of the ", plan.ranks,
                                  " ranks holds the whole model; gradients are summed once a step"));
  }
  if (engine.forward_only()) {
    notes->push_back(
        "engine.forward_only: the optim section and trainer.save_freq do nothing; the weights never change");
  }
}

void NotesOnSchedule(const v1::OptimSpec& optim, Notes* notes) {
  const std::string& type = optim.lr_scheduler_type();
  if (optim.lr_warmup_steps() > 0 && optim.lr_warmup_steps_ratio() > 0) {
    notes->push_back("optim.lr_warmup_steps_ratio does nothing: lr_warmup_steps is given");
  }
  if (type != "WSD" && optim.lr_wsd_decay_steps() > 0) {
    notes->push_back(absl::StrCat("optim.lr_wsd_decay_steps does nothing: lr_scheduler_type is ", type, ", not WSD"));
  }
  if (optim.wd_incr_style() != "constant" && optim.has_start_weight_decay() && optim.has_end_weight_decay()) {
    notes->push_back("optim.weight_decay does nothing: start_weight_decay and end_weight_decay are given");
  }
  if (optim.lr() == 0) notes->push_back("optim.lr 0: the weights never change");
}

void NotesOnRun(const v1::JobSpec& spec, const Plan& plan, Notes* notes) {
  const v1::TrainerSpec& trainer = spec.trainer();
  if (plan.train_rows && *plan.train_rows % plan.rows_per_step != 0) {
    notes->push_back(absl::StrCat("the last step of each epoch has ", *plan.train_rows % plan.rows_per_step,
                                  " rows: no row is dropped, and each token weighs the same"));
  }
  if (trainer.has_total_training_steps()) {
    notes->push_back("trainer.total_epochs does nothing: total_training_steps is given");
  }
  if (!plan.total_steps) {
    notes->push_back("steps and the learning-rate curve are known once the rows are counted");
  }
  if (spec.data().val_files().empty()) {
    notes->push_back(trainer.test_freq() == "-1" ? "data.val_files is empty: no validation"
                                                 : "trainer.test_freq does nothing: data.val_files is empty");
  }
  if (spec.recipe() == "pretrain" && spec.data().loss_on() == "assistant") {
    notes->push_back("data.loss_on does nothing: recipe pretrain scores every token");
  }
}

}  // namespace

std::vector<std::string> NotesOn(const v1::JobSpec& spec, const Plan& plan) {
  Notes notes;
  NotesOnEngine(spec, plan, &notes);
  NotesOnSchedule(spec.optim(), &notes);
  NotesOnRun(spec, plan, &notes);
  return notes;
}

}  // namespace sluice
