// The `post_processor` of tokenizer.json, for single sequences: TemplateProcessing, ByteLevel, Sequence. What is left
// of it here are the special tokens around the text. ByteLevel's only work, trimming white space off offsets, is not
// done: our offsets cover a token's whole text.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tokenizer/json_node.h"

namespace sluice::engine {

struct PostProcessor {
  std::vector<int32_t> before;
  std::vector<int32_t> after;

  // Nothing for a null node. InvalidArgument, with the path, for a kind or an option that is not supported.
  static absl::StatusOr<PostProcessor> FromJson(const JsonNode& node);
};

}  // namespace sluice::engine
