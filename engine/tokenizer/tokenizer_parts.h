// What a Tokenizer is made of. Private to tokenizer.cc and tokenizer_load.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizer/added_tokens.h"
#include "engine/tokenizer/bpe_model.h"
#include "engine/tokenizer/decoder.h"
#include "engine/tokenizer/normalizer.h"
#include "engine/tokenizer/post_processor.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine {

struct TokenizerParts {
  struct DecodeEntry {
    bool used = false;
    bool special_text = false;  // skip_special_tokens drops it
    std::string piece;          // as DecoderChain::Prepare made it
  };

  // Gives the run what `id` stands for, if anything. Appends to `text` what is certain then.
  void Push(int32_t id, DecodeOptions options, DecodeRun* run, std::string* text) const;

  std::unique_ptr<const Normalizer> normalizer;  // may be null
  PreTokenizer pre_tokenizer;
  BpeModel model;
  AddedTokens added_tokens;
  PostProcessor post_processor;
  DecoderChain decoder;
  std::vector<DecodeEntry> decode_entries;  // by id, up to the highest
};

}  // namespace sluice::engine
