// The life of a job as a table: which state may follow which. Pure. Every change of a job's state in the store goes
// along an edge of it; SUCCEEDED, FAILED and CANCELLED have none out of them.
#pragma once

#include <string>
#include <vector>

#include "sluice/v1/types.pb.h"

namespace sluice::controller {

// Whether the table has the edge. False for values that are no states.
bool IsAllowedTransition(v1::JobState from, v1::JobState to);

// SUCCEEDED, FAILED, CANCELLED.
bool IsTerminal(v1::JobState state);

// Every state of the table, JOB_STATE_UNSPECIFIED not among them.
const std::vector<v1::JobState>& AllJobStates();

// `QUEUED` for JOB_STATE_QUEUED, `ENGINE_CRASHED` for FAILURE_REASON_ENGINE_CRASHED: for labels and messages.
std::string StateName(v1::JobState state);
std::string ReasonName(v1::FailureReason reason);

}  // namespace sluice::controller
