#include "common/config/dataflow.h"

#include <algorithm>

#include "common/config/recipes.h"

namespace sluice {

bool NeedsReference(const v1::JobSpec& spec) {
  return spec.algorithm().use_kl_in_reward() || spec.actor().use_kl_loss();
}

int64_t KvCacheTokens(const v1::JobSpec& spec) {
  constexpr int64_t kMost = 131'072;
  if (spec.rollout().kv_cache_tokens() > 0) return spec.rollout().kv_cache_tokens();
  const int64_t longest = spec.data().max_prompt_length() + spec.data().max_response_length();
  return std::max(longest, std::min(kMost, spec.rollout().max_num_seqs() * longest));
}

std::vector<DataflowStage> DataflowOf(const v1::JobSpec& spec) {
  if (!IsPolicyRecipe(spec.recipe())) return {};
  std::vector<DataflowStage> stages = {{"rollout", "generate", "actor", {}},
                                       {"score", "reward", "", {"rollout"}},
                                       {"old_logprob", "logprob", "actor", {"rollout"}}};
  std::vector<std::string> judged = {"score", "old_logprob"};
  if (NeedsReference(spec)) {
    stages.push_back({"ref_logprob", "ref_logprob", "ref", {"rollout"}});
    judged.push_back("ref_logprob");
  }
  stages.push_back({"advantage", "advantage", "", judged});
  stages.push_back({"update", "update", "actor", {"advantage"}});
  return stages;
}

}  // namespace sluice
