// GenerateOp: continues prompts with a model's current weights, greedily or sampled.
#pragma once

#include "absl/status/statusor.h"
#include "engine/data/chat_row_encoder.h"
#include "engine/model/parameters.h"
#include "sluice/v1/engine.pb.h"

namespace sluice::engine {

// Takes memory for the rollout's cache for the length of the call. InvalidArgument, naming the prompt or the key:
// max_new_tokens below 1, a prompt without tokens, a chat template asked for that is not there, sampling parameters
// out of their range.
absl::StatusOr<v1::GenerateResult> RunGenerate(const v1::GenerateOp& op, const ChatRowEncoder& encoder,
                                               const Parameters& parameters);

}  // namespace sluice::engine
