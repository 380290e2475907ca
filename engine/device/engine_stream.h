// The one CUDA stream, with its workspace, that a process computes on for a device.
//
// Everything of the engine that touches a device goes through it, so work runs in the order of the calls without a word
// about it, and it can be captured into CUDA graphs (the default stream cannot). For one engine thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/stream.h"

namespace sluice::engine {

// Made at the first call for a device. On the CPU: a stream that carries nothing.
kernels::Stream EngineStream(kernels::Device device);

// Makes the workspace at least `bytes` long. A smaller one made before stays allocated, because captured graphs point
// into it. ResourceExhausted, naming bytes and device, where there is no memory. Nothing to do on the CPU.
absl::Status ReserveWorkspace(kernels::Device device, int64_t bytes);

// Returns when all work issued so far is done. Internal, with CUDA's words, if it failed.
absl::Status Synchronize(kernels::Device device);

}  // namespace sluice::engine
