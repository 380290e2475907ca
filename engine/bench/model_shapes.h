// The sizes of published models, for benchmarks with random weights.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_config.h"

namespace sluice::engine {

std::vector<std::string> ModelShapeNames();

// NotFound, naming the shapes there are. `layers` > 0: so many in place of the model's own.
absl::StatusOr<ModelConfig> ModelShape(const std::string& name, int64_t layers = 0);

}  // namespace sluice::engine
