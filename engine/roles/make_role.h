// Which kind of role a job takes.
#pragma once

#include <memory>

#include "engine/roles/model_role.h"
#include "engine/roles/role.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

// The role of the job's recipe; one that learns from texts where the recipe is unknown (looking at a model needs none).
std::unique_ptr<Role> MakeRole(const v1::JobSpec& spec, const RoleOptions& options);

}  // namespace sluice::engine
