// How the tokens of an answer are chosen and when it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice::engine {

// The filters and their order are those of kernels/sampling/sampling.h. Several samples of one prompt are several
// requests with ids of their own.
struct SamplingParams {
  double temperature = 1.0;             // 0: greedy
  int64_t top_k = -1;                   // -1 or 0: off
  double top_p = 1.0;                   // (0, 1]
  double min_p = 0.0;                   // [0, 1)
  double repetition_penalty = 1.0;      // > 0
  uint64_t seed = 0;                    // with the request's id and the token's index: the whole randomness
  int64_t max_new_tokens = 256;         // >= 1
  int64_t min_new_tokens = 0;           // until then no token or string ends the answer
  std::vector<int32_t> stop_token_ids;  // end the answer, as the model's end-of-text tokens do
  std::vector<std::string> stop;        // texts that end the answer and are cut from it
  bool ignore_eos = false;              // the model's end-of-text tokens do not end the answer
};

// InvalidArgument, naming the key and its value, for what is outside of the ranges above.
absl::Status Validate(const SamplingParams& params);

}  // namespace sluice::engine
