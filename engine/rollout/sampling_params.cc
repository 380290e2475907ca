#include "engine/rollout/sampling_params.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace sluice::engine {
namespace {

template <typename Value>
absl::Status Wrong(const char* key, Value value, const char* rule) {
  return absl::InvalidArgumentError(absl::StrCat(key, " is ", value, "; it must be ", rule));
}

}  // namespace

absl::Status Validate(const SamplingParams& params) {
  // Written so that NaN is refused too.
  if (!(params.temperature >= 0.0) || std::isinf(params.temperature))
    return Wrong("temperature", params.temperature, "at least 0 (0: greedy)");
  if (params.top_k < -1) return Wrong("top_k", params.top_k, "-1 (off) or at least 1");
  if (!(params.top_p > 0.0 && params.top_p <= 1.0)) return Wrong("top_p", params.top_p, "above 0 and at most 1");
  if (!(params.min_p >= 0.0 && params.min_p < 1.0)) return Wrong("min_p", params.min_p, "at least 0 and below 1");
  if (!(params.repetition_penalty > 0.0) || std::isinf(params.repetition_penalty))
    return Wrong("repetition_penalty", params.repetition_penalty, "above 0 (1: off)");
  if (params.max_new_tokens < 1) return Wrong("max_new_tokens", params.max_new_tokens, "at least 1");
  if (params.min_new_tokens < 0 || params.min_new_tokens > params.max_new_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("min_new_tokens is ", params.min_new_tokens,
                                                   "; it must be between 0 and max_new_tokens, which is ",
                                                   params.max_new_tokens));
  }
  for (const std::string& stop : params.stop) {
    if (stop.empty()) return absl::InvalidArgumentError("stop holds an empty text, which would end every answer");
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
