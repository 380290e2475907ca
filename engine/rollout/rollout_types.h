// What a rollout is asked for and what it gives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/rollout/sampling_params.h"

namespace sluice::engine {

// An answer, or the beginning of one that was aborted, token by token.
struct GeneratedPart {
  std::vector<int32_t> token_ids;
  std::vector<float> log_probs;  // as many
  int64_t weight_version = 0;
};

struct RolloutRequest {
  int64_t id = 0;  // unique among the unfinished; also the stream of its randomness
  std::vector<int32_t> prompt_ids;
  SamplingParams sampling;
  // What an aborted answer already had: it goes on behind it, and max_new_tokens counts it.
  GeneratedPart generated;
};

enum class FinishReason : uint8_t {
  kStop,    // an end-of-text token, a stop token or a stop string
  kLength,  // max_new_tokens, or the longest sequence that the engine holds
  kAbort,   // by the caller
};

struct RolloutSample {
  int64_t id = 0;
  std::vector<int32_t> token_ids;  // the token that ended the answer included
  std::vector<float> log_probs;    // as many: log softmax(logits / temperature) of each, before penalty and filters
  std::string text;                // without the end token, cut before a stop string
  FinishReason finish_reason = FinishReason::kLength;
  std::string matched_stop;    // the stop string; empty where none matched
  int64_t weight_version = 0;  // of the weights that its first token was drawn with
};

struct RolloutOptions {
  int64_t block_size = 16;                // tokens a page of the cache holds
  int64_t cache_tokens = 0;               // of all pages together; at least max_model_len
  int64_t max_num_batched_tokens = 2048;  // a forward pass computes
  int64_t max_num_seqs = 64;              // in a forward pass
  int64_t max_model_len = 0;              // prompt and answer together
  bool prefix_sharing = true;
};

// Since Create.
struct RolloutCounters {
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // computed for prompts, and again after a preemption
  int64_t shared_tokens = 0;  // found in the cache instead
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t finished = 0;
  int64_t aborted = 0;
};

}  // namespace sluice::engine
