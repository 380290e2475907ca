#include "common/config/recipes.h"

namespace sluice {

const std::vector<Recipe>& Recipes() {
  static const auto* const recipes = new std::vector<Recipe>{
      {"sft", RecipeKind::kText, "Supervised fine-tuning on conversations.", {}},
      {"pretrain", RecipeKind::kText, "Every token of plain text is learned.", {}},
      {"dpo",
       RecipeKind::kPreference,
       "Pairs of answers, compared with a reference model (Rafailov et al. 2023).",
       {{"preference.loss_type", "sigmoid"}}},
      {"ipo",
       RecipeKind::kPreference,
       "dpo with a bounded margin (Azar et al. 2023).",
       {{"preference.loss_type", "ipo"}}},
      {"orpo",
       RecipeKind::kPreference,
       "Fine-tuning on the better answer with an odds ratio, without a reference model (Hong et al. 2024).",
       {{"preference.loss_type", "orpo"}}},
      {"simpo",
       RecipeKind::kPreference,
       "Mean log-probabilities with a target margin, without a reference model (Meng et al. 2024).",
       {{"preference.loss_type", "simpo"}, {"preference.beta", "2.0"}, {"preference.simpo_gamma", "1.0"}}},
      {"kto",
       RecipeKind::kPreference,
       "Single answers that are wanted or not (Ethayarajh et al. 2024).",
       {{"preference.loss_type", "kto"}, {"data.response_key", "completion"}}},
      {"reward_model",
       RecipeKind::kPreference,
       "A head of one number learns to rank pairs of answers (Bradley & Terry 1952; Ouyang et al. 2022).",
       {{"preference.loss_type", "bradley_terry"}}},
      {"knowledge_distillation",
       RecipeKind::kDistillation,
       "A teacher's distributions, reference.path, over the tokens of given answers (Hinton et al. 2015).",
       {}},
      {"distillation",
       RecipeKind::kPolicy,
       "The model's own answers are drawn towards a teacher, reference.path, token by token (Agarwal et al. 2023).",
       {{"reward.kind", "none"},
        {"rollout.n", "1"},
        {"actor.use_kl_loss", "true"},
        {"actor.kl_loss_coef", "1.0"},
        {"actor.kl_loss_type", "k1+"}}},
      {"grpo",
       RecipeKind::kPolicy,
       "Rewards relative to those of the same prompt's other answers (Shao et al. 2024).",
       {{"algorithm.adv_estimator", "grpo"}}},
      {"dr_grpo",
       RecipeKind::kPolicy,
       "grpo without the division by the deviation and by the answer's length (Liu et al. 2025).",
       {{"algorithm.adv_estimator", "grpo"},
        {"algorithm.norm_adv_by_std_in_grpo", "false"},
        {"actor.loss_agg_mode", "seq-mean-token-sum-norm"}}},
      {"dapo",
       RecipeKind::kPolicy,
       "grpo with a higher upper clip and without groups that teach nothing (Yu et al. 2025).",
       {{"algorithm.adv_estimator", "grpo"},
        {"algorithm.filter_groups.enable", "true"},
        {"actor.clip_ratio_low", "0.2"},
        {"actor.clip_ratio_high", "0.28"},
        {"actor.clip_ratio_c", "10"},
        {"actor.loss_agg_mode", "token-mean"}}},
      {"gspo",
       RecipeKind::kPolicy,
       "grpo with the ratio of whole answers (Zheng et al. 2025).",
       {{"algorithm.adv_estimator", "grpo"},
        {"actor.policy_loss.loss_mode", "gspo"},
        {"actor.clip_ratio_low", "3e-4"},
        {"actor.clip_ratio_high", "4e-4"},
        {"actor.loss_agg_mode", "seq-mean-token-mean"}}},
      {"rloo",
       RecipeKind::kPolicy,
       "Rewards relative to the mean of the other answers (Ahmadian et al. 2024).",
       {{"algorithm.adv_estimator", "rloo"}}},
      {"reinforce_plus_plus",
       RecipeKind::kPolicy,
       "Rewards to come, normalised over the whole batch (Hu 2025).",
       {{"algorithm.adv_estimator", "reinforce_plus_plus"}}},
      {"remax",
       RecipeKind::kPolicy,
       "Rewards relative to that of the most likely answer (Li et al. 2023).",
       {{"algorithm.adv_estimator", "remax"}}},
      {"opo",
       RecipeKind::kPolicy,
       "Rewards relative to their mean weighted by length (Hao et al. 2025).",
       {{"algorithm.adv_estimator", "opo"}}},
      {"ppo",
       RecipeKind::kPolicy,
       "Advantages from a critic that is trained beside the policy (Schulman et al. 2015, 2017).",
       {{"algorithm.adv_estimator", "gae"}}},
      {"dataflow",
       RecipeKind::kPolicy,
       "The stages that the job lists under dataflow, by the keys of reinforcement learning.",
       {}},
  };
  return *recipes;
}

const Recipe* FindRecipe(std::string_view name) {
  for (const Recipe& recipe : Recipes()) {
    if (recipe.name == name) return &recipe;
  }
  return nullptr;
}

std::string_view NameOf(RecipeKind kind) {
  switch (kind) {
    case RecipeKind::kText:
      return "training on texts";
    case RecipeKind::kPolicy:
      return "reinforcement learning";
    case RecipeKind::kPreference:
      return "preference tuning";
    case RecipeKind::kDistillation:
      return "distillation on given answers";
  }
  return "";
}

RecipeKind KindOfRecipe(std::string_view name) {
  const Recipe* recipe = FindRecipe(name);
  return recipe == nullptr ? RecipeKind::kText : recipe->kind;
}

bool IsPolicyRecipe(std::string_view name) { return KindOfRecipe(name) == RecipeKind::kPolicy; }

bool IsPreferenceRecipe(std::string_view name) { return KindOfRecipe(name) == RecipeKind::kPreference; }

bool LearnsGivenTexts(std::string_view name) {
  const RecipeKind kind = KindOfRecipe(name);
  return kind == RecipeKind::kText || kind == RecipeKind::kDistillation;
}

}  // namespace sluice
