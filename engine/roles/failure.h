// The kinds of failure, from the status of an operation.
#pragma once

#include "absl/status/status.h"
#include "sluice/v1/engine.pb.h"

namespace sluice::engine {

// `status` with a Failure as its evidence, so that the controller need not guess. Codes are mapped as follows, unless
// the status carries a Failure already: InvalidArgument, NotFound, AlreadyExists and OutOfRange are INVALID (the user's
// input); Aborted is COLLECTIVE; ResourceExhausted is STORAGE for an operation that writes files and OUT_OF_MEMORY for
// the others; DataLoss is INVALID where something is read and STORAGE where it is written; all else is ENGINE_ERROR. OK
// stays OK.
absl::Status WithFailureOf(const absl::Status& status, v1::StageRequest::OpCase op, int rank);

}  // namespace sluice::engine
