// Draws one token for each row of logits, and gives its log-probability.
//
// Of one row, in this order:
//   1. ids in `forbidden` get logit -infinity;
//   2. repetition penalty r (Keskar et al. 2019): logits of ids in `seen` become l / r for l > 0, else l * r;
//   3. temperature t: p = softmax(l / t); with t = 0 the largest logit is taken and what follows is skipped;
//   4. top-k: the k most probable tokens stay (of equal ones the lower ids);
//   5. top-p (Holtzman et al. 2019): of the rest, renormalised, the most probable up to and including the one with
//   which
//      their sum reaches top_p;
//   6. min-p (Nguyen et al. 2024): of the rest, those with p >= min_p * max p.
// The token is drawn from what is left, renormalised. Of equal largest logits greedy takes the lowest id.
//
// The log-probability is that of the whole distribution before steps 1, 2 and 4 to 6, which is what a trainer computes
// again: log softmax(logits / t)[token], with t = 1 where the temperature is 0.
//
// Randomness is philox.h's block `index` of stream `stream` under `seed`: a row's token is a function of its logits and
// its SamplingRow alone, never of the batch.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/stream.h"
#include "kernels/tensor_view.h"

namespace sluice::kernels {

struct SamplingRow {
  float temperature = 1.0f;         // >= 0; so small that l / t overflows: as good as 0
  int64_t top_k = 0;                // < 1, or at least the vocabulary's size: off
  float top_p = 1.0f;               // >= 1: off. <= 0: one token stays.
  float min_p = 0.0f;               // <= 0: off. >= 1: only the most probable stay.
  float repetition_penalty = 1.0f;  // > 0; 1: off
  std::span<const int32_t> seen;    // ids of prompt and answer, in any order, also repeated; read with a penalty
  std::span<const int32_t> forbidden;
  uint64_t seed = 0, stream = 0, index = 0;
};

struct SampledToken {
  int32_t token = -1;
  float log_prob = 0;  // natural
};

// B = rows, V = vocabulary size.
struct Sampling {
  ConstTensorView logits;             // [B, V] fp32, strided
  std::span<const SamplingRow> rows;  // [B]
  std::span<SampledToken> out;        // [B]: overwritten
};

// On the CPU rows share the threads. A row without filters is read three times and nothing is sorted; with filters only
// the candidates near the border are. On CUDA rows with neither filters, penalty nor forbidden ids are drawn where
// their logits are; the logits of the others are copied to the host. Returns when the tokens are there. On both a row
// gets the same token, but for draws that fall within rounding of a border between two. InvalidArgument, naming the
// row, for NaN or +infinity among its logits, a row of which nothing is left, ids outside of the vocabulary, a negative
// temperature or a penalty that is not positive; `out` is then undefined.
absl::Status Run(const Sampling& args, Stream stream = {});

// The probabilities [V] that Run draws a row's token from; greedy gives one 1. Errors as Run.
absl::Status Distribution(std::span<const float> logits, const SamplingRow& row, std::span<float> probabilities);

}  // namespace sluice::kernels
