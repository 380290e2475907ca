// What is expanded inside the texts of a job file: environment variables and paths.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

// Value of an environment variable; nullopt: not set.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

// The process's environment.
EnvLookup ProcessEnvironment();

// Replaces `${NAME}` and `${NAME,default}`; `$${` stands for `${`. A single pass: what a variable holds is not expanded
// again. InvalidArgument: a variable without a default is not set (an empty one is), or `${` that is no reference.
absl::StatusOr<std::string> ExpandEnvironment(const std::string& text, const EnvLookup& env);

// `~` and `~/x` by $HOME; relative paths below `working_folder`; `.` and `..` removed, no link is followed. Empty stays
// empty. InvalidArgument: `~` without $HOME, or `~user`.
absl::StatusOr<std::string> ExpandPath(const std::string& path, const std::string& working_folder,
                                       const EnvLookup& env);

}  // namespace sluice
