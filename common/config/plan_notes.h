// Sentences of a plan: how a value is carried out, and which given values do nothing in this job.
#pragma once

#include <string>
#include <vector>

#include "common/config/model_facts.h"
#include "common/config/plan.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// `plan` has its numbers.
std::vector<std::string> NotesOn(const v1::JobSpec& spec, const ModelFacts& model, const Plan& plan);

}  // namespace sluice
