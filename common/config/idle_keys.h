// Keys of the job's own kind of recipe whose values another key's value leaves without effect: actor.tau_pos where the
// policy loss is not sapo. Keys of other kinds of recipes are errors (other_recipes.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/config/recipes.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

struct IdleRule {
  RecipeKind kind;                // for jobs of this kind
  std::vector<const char*> keys;  // have an effect only where `used`
  bool (*used)(const v1::JobSpec& spec);
  const char* decided_by;  // the key that decides it
};

// In the order in which they are judged: where several are about one key, the first that is not used says so.
std::span<const IdleRule> IdleRules();

// "actor.tau_pos does nothing: actor.policy_loss.loss_mode is vanilla", for each key that has a value other than its
// default and its recipe's, in the order of the rules. REQUIRES: `spec` is valid.
std::vector<std::string> IdleKeys(const v1::JobSpec& spec);

}  // namespace sluice
