// Patterns of file names.
#pragma once

#include <string>
#include <vector>

#include "common/file_system.h"

namespace sluice {

// The files that `pattern` leads to, in byte order; `*`, `?` and `[...]` match within one part of the path, names that
// begin with a dot only by a pattern that does. A file that has the very name is taken as it is, whatever is in the
// name.
std::vector<std::string> Glob(const std::string& pattern, FileSystem& file_system);

}  // namespace sluice
