// From a stage request to a role's method, and from exceptions to statuses: no exception of a third party passes this
// border.
#pragma once

#include "absl/status/statusor.h"
#include "engine/roles/role.h"
#include "sluice/v1/engine.pb.h"

namespace sluice::engine {

// Runs the request's operation. InvalidArgument: the request names none. FailedPrecondition: `role` is null, nothing
// was initialised. Every error carries a Failure (failure.h).
absl::StatusOr<v1::StageResponse> DispatchStage(Role* role, const v1::StageRequest& request, int rank);

}  // namespace sluice::engine
