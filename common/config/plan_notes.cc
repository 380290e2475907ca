#include "common/config/plan_notes.h"

#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/idle_keys.h"
#include "common/config/memory_plan.h"
#include "common/config/recipes.h"
#include "common/config/rewards_from_spec.h"

namespace sluice {
namespace {

using Notes = std::vector<std::string>;

void NotesOnPrecision(const v1::JobSpec& spec, Notes* notes) {
  const v1::OptimSpec& optim = spec.optim();
  const bool trains = !spec.engine().forward_only();
  if (spec.engine().model_dtype() == "bf16") {
    notes->push_back(trains ? "engine.model_dtype bf16: weights and activations in bf16, gradients in fp32"
                            : "engine.model_dtype bf16: weights and activations in bf16");
    if (!trains) return;
    notes->push_back(optim.master_weights()
                         ? "optim.master_weights: 16 more bits beside each weight make it an exact fp32 master"
                         : "optim.master_weights false: the bf16 weights are all there is, rounded stochastically");
  } else {
    notes->push_back("engine.model_dtype fp32: weights, activations and gradients in fp32");
    if (!trains) return;
    if (!optim.master_weights()) {
      notes->push_back("optim.master_weights does nothing: fp32 weights are their own master copy");
    }
  }
  if (optim.moments_dtype() == "bf16") {
    notes->push_back(
        "optim.moments_dtype bf16: both moments are rounded stochastically; 4 bytes a parameter are saved");
  }
}

void NotesOnCheckpointing(const v1::EngineSpec& engine, Notes* notes) {
  const std::string& mode = engine.activation_checkpointing();
  if (engine.forward_only()) {
    notes->push_back("engine.activation_checkpointing does nothing: forward_only has no backward");
  } else if (mode == "full") {
    notes->push_back(
        "engine.activation_checkpointing full: each layer keeps its entry only and runs its forward twice; least "
        "memory, most time");
  } else if (mode == "selective") {
    notes->push_back(
        "engine.activation_checkpointing selective: the outputs of norms and SwiGLU are computed again in the "
        "backward, by kernels that read their inputs anyway");
  } else {
    notes->push_back("engine.activation_checkpointing none: all activations are kept; most memory");
  }
}

// Of the keys that are about CUDA.
void NotesOnCuda(const v1::EngineSpec& engine, const ModelFacts& model, Notes* notes) {
  if (engine.device() == "cpu") {
    if (engine.full_determinism()) {
      notes->push_back("engine.full_determinism does nothing on the CPU: computation there always repeats");
    }
    notes->push_back("engine.gemm_autotune and engine.cuda_graphs do nothing on the CPU");
    return;
  }
  const bool recordable = IsRecordable(engine, model.head_dim);
  if (engine.model_dtype() == "fp32") {
    notes->push_back(
        "engine.model_dtype fp32 on CUDA: attention sequence by sequence, products without bf16's tensor cores; bf16 "
        "is many times faster");
  }
  if (engine.full_determinism()) {
    notes->push_back(absl::StrCat("engine.full_determinism: reruns on CUDA give the same bits",
                                  engine.gemm_autotune() ? "; engine.gemm_autotune does nothing" : ""));
    if (recordable && !engine.forward_only()) {
      notes->push_back(absl::StrCat(
          "engine.full_determinism: attention's backward takes 2 * B * ", model.attention_heads,
          " * S^2 bytes of workspace, for the B sequences of a micro-batch of which the longest has S tokens, both "
          "rounded up to powers of two; for long contexts lower data.max_token_len_per_gpu or leave it out"));
    }
  } else if (engine.gemm_autotune()) {
    notes->push_back(
        "engine.gemm_autotune: the first steps on CUDA are slower; the choices are kept in gemm.txt in data.cache_dir");
  }
  if (engine.cuda_graphs() && !recordable) {
    notes->push_back(absl::StrCat("engine.cuda_graphs does nothing: attention in ", engine.model_dtype(),
                                  " with heads of ", model.head_dim,
                                  " cannot be recorded (bf16 can, with heads of at most 128 that divide by 8)"));
  } else if (engine.cuda_graphs()) {
    notes->push_back("engine.cuda_graphs: forward and backward of the layers are recorded and launched as one each");
  }
}

void NotesOnEngine(const v1::JobSpec& spec, const ModelFacts& model, const Plan& plan, Notes* notes) {
  const v1::EngineSpec& engine = spec.engine();
  if (engine.device() == "auto") {
    notes->push_back(
        "engine.device auto: cuda where the worker has a usable GPU, else cpu; the memory is that on cuda, on a CPU "
        "only the workspace is another");
  }
  NotesOnPrecision(spec, notes);
  NotesOnCheckpointing(engine, notes);
  NotesOnCuda(engine, model, notes);
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
  if (IsPolicyRecipe(spec.recipe())) {
    notes->push_back("data.max_length, data.loss_on, data.cache_dir do nothing: answers are generated");
    if (plan.pools.size() > 1) {
      notes->push_back(absl::StrCat("the memory is that of a rank of pool ", plan.pools[0].name,
                                    ", which trains; ranks of other pools need less"));
    }
    if (spec.rollout().mode() != "async" && spec.rollout().max_staleness() != 1) {
      notes->push_back(absl::StrCat("rollout.max_staleness does nothing: rollout.mode is ", spec.rollout().mode()));
    }
    if (spec.rollout().n() == 1 && JudgesAnswers(spec) && spec.algorithm().adv_estimator() != "remax" &&
        spec.algorithm().adv_estimator() != "reinforce_plus_plus") {
      notes->push_back(absl::StrCat("rollout.n 1: algorithm.adv_estimator ", spec.algorithm().adv_estimator(),
                                    " compares the answers to a prompt with each other; a single one teaches nothing"));
    }
    if (FiltersGroups(spec)) {
      const int64_t most = spec.algorithm().filter_groups().max_num_gen_batches();
      if (most != 1) {
        notes->push_back(absl::StrCat("algorithm.filter_groups: a step answers ",
                                      most == 0 ? "as many batches of prompts as it takes, at most an epoch's"
                                                : absl::StrCat("1 to ", most, " batches of prompts"),
                                      "; the data may be passed more often than trainer.total_epochs"));
      }
    }
  }
  if (IsPreferenceRecipe(spec.recipe())) {
    notes->push_back("data.loss_on does nothing: the answers are scored, their prompts are not");
    if (plan.rows_are == "pairs") {
      notes->push_back(
          "a pair lies in one micro-batch whole: data.max_token_len_per_gpu holds two rows of data.max_length");
    }
    const v1::PreferenceSpec& preference = spec.preference();
    const std::string& loss = preference.loss_type();
    if (loss == "bradley_terry") {
      notes->push_back(
          "preference.loss_type bradley_terry: a head of one number takes the place of the language-model head; "
          "preference.beta does nothing");
    }
    if (preference.center_rewards_coefficient() > 0 && loss != "bradley_terry") {
      notes->push_back(absl::StrCat("preference.center_rewards_coefficient does nothing: loss_type is ", loss));
    }
    if (preference.label_smoothing() > 0 && loss != "sigmoid" && loss != "simpo") {
      notes->push_back(absl::StrCat("preference.label_smoothing does nothing: loss_type is ", loss));
    }
  }
  if (spec.recipe() == "pretrain" && spec.data().loss_on() == "assistant") {
    notes->push_back("data.loss_on does nothing: recipe pretrain scores every token");
  }
}

}  // namespace

std::vector<std::string> NotesOn(const v1::JobSpec& spec, const ModelFacts& model, const Plan& plan) {
  Notes notes;
  NotesOnEngine(spec, model, plan, &notes);
  NotesOnSchedule(spec.optim(), &notes);
  NotesOnRun(spec, plan, &notes);
  for (std::string& note : IdleKeys(spec)) notes.push_back(std::move(note));
  return notes;
}

}  // namespace sluice
