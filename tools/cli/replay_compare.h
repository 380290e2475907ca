// What a step left behind, and whether another run of it left the same. Pure but for reading files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::cli {

// The numbers of a step, by name, as texts that say every bit of them: those of metrics.jsonl that do not tell how long
// something took or how much memory was in use.
using StepNumbers = std::map<std::string, std::string>;

// Of step `step` in the text of a metrics.jsonl; none where it has no line of that step.
std::optional<StepNumbers> NumbersOfStep(const std::string& metrics_jsonl, int64_t step);

// Checksums of the tensors' files in a manifest.json, by name. InvalidArgument: it is none.
absl::StatusOr<std::map<std::string, std::string>> TensorChecksums(const std::string& manifest_json);

// The largest of `steps` below `step`; 0, the beginning, where there is none.
int64_t CheckpointBefore(const std::vector<int64_t>& steps, int64_t step);

struct Difference {
  std::string name;
  std::string recorded, again;  // "-" where it is not there
};

// Names of both, whose texts differ or that one of them lacks, in byte order.
std::vector<Difference> Differences(const std::map<std::string, std::string>& recorded,
                                    const std::map<std::string, std::string>& again);

}  // namespace sluice::cli
