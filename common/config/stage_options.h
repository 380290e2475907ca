// The options of a data flow's stages, which stand for keys of other sections: `sampling: {n: 8}` of a stage that
// generates is rollout.n. The reader puts them there, so that everything else reads one place. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sluice/v1/job.pb.h"

namespace sluice {

struct StageOption {
  std::string path;                              // "dataflow[0].sampling.n"
  std::string key;                               // the key, or section, that it stands for: "rollout.n"
  std::function<void(v1::JobSpec* spec)> apply;  // gives the key the option's value
};

// Those that are given, of ops that have them; an option of another op is left to ValidateDataflow.
std::vector<StageOption> StageOptionsOf(const v1::JobSpec& spec);

// Applies them, except where `given` says that the job file has the key, or something in the section, itself.
void ApplyStageOptions(const std::function<bool(const std::string& key)>& given, v1::JobSpec* spec);

// Whether the key says the same.
bool Agrees(const StageOption& option, const v1::JobSpec& spec);

}  // namespace sluice
