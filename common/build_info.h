// What this program was built from.
#pragma once

namespace sluice {

// Version of the project, such as `0.1.0`.
const char* BuildVersion();

// Commit of the source tree when it was configured, or `unknown` outside a repository.
const char* BuildCommit();

}  // namespace sluice
