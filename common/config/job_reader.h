// A job file, overrides and the environment to a complete JobSpec.
//
// Strict, and everything that is wrong is reported at once, each with file, line and YAML path:
//   job.yaml:4: optim.weigth_decay: unknown key (did you mean weight_decay?)
// Every scalar is read by the type of its key (common/config/scalar.h). A key that is absent or null has its default,
// so the JobSpec that comes back has a value for each key; only `optional` fields may be unset.
//
// Overrides are `key=value` with the dotted path of the key (or of a section) and a YAML value: they win over the file.
// `${NAME}` and `${NAME,default}` inside values, in the file and in overrides, are environment variables. Keys that
// hold paths come back absolute. Nothing is read but `file`: see common/config/file_checks.h for what the paths lead
// to.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/config_error.h"
#include "common/config/expand.h"
#include "common/file_system.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

struct LoadOptions {
  std::string file;                    // read from `file_system`, taken from working_folder where relative
  std::optional<std::string> text;     // the YAML itself: nothing is read and `file` is only the name in messages
  std::vector<std::string> overrides;  // "optim.lr=3e-4", later ones win
  EnvLookup env = ProcessEnvironment();
  std::string working_folder;                    // absolute; relative paths are taken from here
  FileSystem* file_system = &PosixFileSystem();  // outlives the call
};

// Where the value of a key was written.
struct Origin {
  std::string source;
  int line = 0;
};

struct LoadResult {
  v1::JobSpec spec;                 // complete where errors is empty
  std::vector<ConfigError> errors;  // in file order, then missing keys, then rules that several keys break together
  std::map<std::string, Origin> origins;  // by key path, for the keys that were given
};

// Reads and validates (common/config/validate.h). Rules over keys that could not be read are not judged.
LoadResult LoadJob(const LoadOptions& options);

// The same for callers that only need the message: InvalidArgument with one line per error.
absl::StatusOr<v1::JobSpec> LoadJobSpec(const LoadOptions& options);

// `error` with the place where its key was given, where that is known and the error has none.
ConfigError WithOrigin(ConfigError error, const std::map<std::string, Origin>& origins);

}  // namespace sluice
