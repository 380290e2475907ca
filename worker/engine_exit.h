// From the way a process ended to the failure that people read.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/process.h"
#include "sluice/v1/types.pb.h"

namespace sluice::worker {

// Most of a process's last output that a failure carries.
inline constexpr int64_t kStderrTailBytes = 64 * 1024;

// The failure of the engine of `rank` that ended by itself. `stderr_tail` is its last output, of which kStderrTailBytes
// are kept. A kill by the kernel's out-of-memory killer, and an engine that said it ran out of memory, are
// OUT_OF_MEMORY; all else is ENGINE_CRASHED.
v1::Failure FailureOfExit(int rank, const ProcessExit& exit, const std::string& stderr_tail);

// The failure of an engine that we killed because it answered nothing for `silence`. `process_state` is the letter of
// its process in /proc then (proc(5)); ENGINE_CRASHED.
v1::Failure FailureOfSilence(int rank, absl::Duration silence, char process_state, const std::string& stderr_tail);

}  // namespace sluice::worker
