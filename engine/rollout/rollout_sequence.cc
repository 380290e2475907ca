#include "engine/rollout/rollout_sequence.h"

#include <algorithm>
#include <utility>

namespace sluice::engine {

RolloutSequence::RolloutSequence(RolloutRequest request, const std::vector<int32_t>* eos_token_ids,
                                 const Tokenizer* tokenizer, int64_t max_model_len)
    : request_(std::move(request)),
      eos_token_ids_(eos_token_ids),
      max_model_len_(max_model_len),
      tokens_(request_.prompt_ids),
      log_probs_(request_.generated.log_probs),
      end_tokens_(request_.sampling.stop_token_ids),
      weight_version_(request_.generated.weight_version) {
  if (!request_.sampling.ignore_eos) {
    end_tokens_.insert(end_tokens_.end(), eos_token_ids_->begin(), eos_token_ids_->end());
  }
  if (tokenizer != nullptr) {
    matcher_ = std::make_unique<StopMatcher>(*tokenizer, request_.prompt_ids, request_.sampling.stop);
  }
  // What was generated before did not end the answer then.
  for (const int32_t id : request_.generated.token_ids) {
    tokens_.push_back(id);
    if (matcher_ != nullptr) matcher_->Push(id, /*armed=*/false);
  }
}

kernels::SamplingRow RolloutSequence::SamplingOfNext() const {
  const SamplingParams& params = request_.sampling;
  kernels::SamplingRow row;
  row.temperature = static_cast<float>(params.temperature);
  row.top_k = params.top_k;
  row.top_p = static_cast<float>(params.top_p);
  row.min_p = static_cast<float>(params.min_p);
  row.repetition_penalty = static_cast<float>(params.repetition_penalty);
  row.seen = tokens_;
  if (generated() < params.min_new_tokens) row.forbidden = end_tokens_;
  row.seed = params.seed;
  row.stream = static_cast<uint64_t>(request_.id);
  row.index = static_cast<uint64_t>(generated());
  return row;
}

bool RolloutSequence::IsEndToken(int32_t id) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end();
}

std::optional<FinishReason> RolloutSequence::ReasonToEnd(int32_t last) {
  // An end token is no text.
  if (IsEndToken(last)) return FinishReason::kStop;
  const bool armed = generated() >= request_.sampling.min_new_tokens;
  if (matcher_ != nullptr && matcher_->Push(last, armed)) return FinishReason::kStop;
  if (generated() < request_.sampling.max_new_tokens && length() < max_model_len_) return std::nullopt;
  // What the decoder held back may complete a stop string.
  if (matcher_ != nullptr && matcher_->Finish(armed)) return FinishReason::kStop;
  return FinishReason::kLength;
}

std::optional<FinishReason> RolloutSequence::Add(const kernels::SampledToken& token, int64_t weight_version) {
  if (generated() == 0) weight_version_ = weight_version;
  tokens_.push_back(token.token);
  log_probs_.push_back(token.log_prob);
  return ReasonToEnd(token.token);
}

RolloutSample RolloutSequence::Finish(FinishReason reason) {
  RolloutSample sample;
  sample.id = request_.id;
  sample.token_ids.assign(tokens_.begin() + static_cast<int64_t>(request_.prompt_ids.size()), tokens_.end());
  sample.log_probs = std::move(log_probs_);
  sample.finish_reason = reason;
  sample.weight_version = weight_version_;
  if (matcher_ == nullptr) return sample;
  if (!matcher_->finished()) matcher_->Finish(/*armed=*/false);
  sample.text = matcher_->text();
  sample.matched_stop = matcher_->matched().value_or("");
  return sample;
}

}  // namespace sluice::engine
