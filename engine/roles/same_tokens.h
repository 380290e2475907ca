// Whether another model reads the ids of the trained model as the same tokens.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "engine/model/model_config.h"
#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine {

// `folder` is the other model's, `config` its configuration. Without a tokenizer.json there only its size is judged;
// tokens beyond those of `trained` are its own business. InvalidArgument, naming the folder: too few embedding rows, or
// an id that is another token; and Tokenizer::Load's errors.
absl::Status CheckSameTokens(const std::string& folder, const ModelConfig& config, const Tokenizer& trained);

}  // namespace sluice::engine
