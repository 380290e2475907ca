// One request on its way to a sample: its tokens, its place in the cache, and when it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/rollout/rollout_types.h"
#include "engine/rollout/stop_matcher.h"
#include "kernels/sampling/sampling.h"

namespace sluice::engine {

class RolloutSequence {
 public:
  // `eos_token_ids` and `tokenizer` outlive it; without a tokenizer there is no text.
  RolloutSequence(RolloutRequest request, const std::vector<int32_t>* eos_token_ids, const Tokenizer* tokenizer,
                  int64_t max_model_len);

  int64_t id() const { return request_.id; }
  std::span<const int32_t> tokens() const { return tokens_; }  // prompt and answer
  std::span<const int32_t> prompt() const { return std::span(tokens_).first(request_.prompt_ids.size()); }
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t generated() const { return static_cast<int64_t>(log_probs_.size()); }

  // How the next token is drawn. Views of this object: valid until the next Add.
  kernels::SamplingRow SamplingOfNext() const;

  // Adds a drawn token. The reason, if it ended the answer.
  std::optional<FinishReason> Add(const kernels::SampledToken& token, int64_t weight_version);

  // REQUIRES: called once, at the end.
  RolloutSample Finish(FinishReason reason);

  // The cache's side, kept by the engine.
  int64_t computed = 0;         // tokens in the cache
  std::vector<int32_t> blocks;  // their pages

 private:
  bool IsEndToken(int32_t id) const;
  std::optional<FinishReason> ReasonToEnd(int32_t last);

  RolloutRequest request_;
  const std::vector<int32_t>* eos_token_ids_;
  int64_t max_model_len_;
  std::vector<int32_t> tokens_;
  std::vector<float> log_probs_;
  std::vector<int32_t> end_tokens_;  // that end the answer
  std::unique_ptr<StopMatcher> matcher_;
  int64_t weight_version_ = 0;
};

}  // namespace sluice::engine
