// From a row to the tokens a model is trained on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/formats.h"

namespace sluice::engine {

struct EncodedRow {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;  // same length: 1 where the token itself is to be learned (not yet shifted), else 0
};

// Tokenizer and chat template behind one call. Immutable; Encode is called from many threads at once.
class RowEncoder {
 public:
  virtual ~RowEncoder() = default;

  // kInvalidArgument where the sample cannot be written down (the template refuses it, there is no template for a
  // conversation). The same sample always gives the same answer.
  virtual absl::StatusOr<EncodedRow> Encode(const Sample& sample) const = 0;

  // Differs between encoders that may answer differently: tokenizer, template, special tokens, what is scored.
  virtual std::string Fingerprint() const = 0;

  // Whether a prompt and its response become turns of a chat.
  virtual bool has_chat_template() const = 0;
};

}  // namespace sluice::engine
