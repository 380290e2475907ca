// Named places at which a test can make a process die, as a power cut or an out-of-memory kill would.
//
// The environment variable SLUICE_FAILPOINTS names them: "engine.micro_batch=3,engine.checkpoint=1" sends this process
// SIGKILL when it passes engine.micro_batch for the third time, or engine.checkpoint for the first. Without the
// variable a pass costs one read of a flag. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace sluice {

// Passes the failpoint `name`.
void Failpoint(const char* name);

// "a=3,b=1" → {a: 3, b: 1}; entries that are not of this form are left out.
std::map<std::string, int64_t> ParseFailpoints(std::string_view text);

}  // namespace sluice
