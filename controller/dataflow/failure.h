// What an error of a stage means for the job: the reason, and whether another attempt may help. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sluice/v1/types.pb.h"

namespace sluice::controller {

// The failure that a call's status tells: the evidence it carries where there is some, else by its code. `where` says
// what was being done ("train_batch on worker w1"). The failure's rank is -1 unless the evidence names one. REQUIRES:
// !status.ok().
v1::Failure FailureFromStatus(const absl::Status& status, const std::string& where);

// Whether another attempt may help: a lost worker, a crashed engine, a broken collective, an engine's own error. Not
// where the user's input, memory or a full disk is the cause: it would be the same again.
bool IsRetryable(v1::FailureReason reason);

// When several ranks fail together, which one is the cause: an engine's own end before the peers' broken collectives.
// REQUIRES: failures is not empty.
v1::Failure RootCause(const std::vector<v1::Failure>& failures);

}  // namespace sluice::controller
