// One micro-batch as every model and loss sees it: packed sequences in a row of fixed length.
//
// T = token slots (engine.max_token_len_per_gpu, static for a run), S = sequences packed into it, T_used =
// cu_seqlens[S]. Slots T_used..T-1 are the tail: they belong to no sequence, have label kIgnoreLabel and weigh nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::engine {

// The label of a slot that is not scored (the convention of `transformers` and PyTorch's cross-entropy).
inline constexpr int32_t kIgnoreLabel = -100;

struct MicroBatch {
  std::vector<int32_t> input_ids;     // [T] token ids; 0 in the tail
  std::vector<int32_t> position_ids;  // [T] from 0 in each sequence; 0 in the tail
  std::vector<int32_t> labels;        // [T] the token that slot t must predict: the next token of the same sequence
                                      //     where that token is supervised, else kIgnoreLabel. Never crosses a border.
  std::vector<int32_t>
      cu_seqlens;  // [S + 1] from 0, ascending: sequence s is the slots cu_seqlens[s]..cu_seqlens[s+1]-1
  std::vector<int64_t> sample_ids;  // [S] the row of the data set that each sequence came from

  int64_t token_slots() const { return static_cast<int64_t>(input_ids.size()); }
  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  int64_t used_slots() const { return cu_seqlens.empty() ? 0 : cu_seqlens.back(); }
  int64_t scored_tokens() const {
    int64_t count = 0;
    for (int32_t label : labels) count += label != kIgnoreLabel;
    return count;
  }
};

}  // namespace sluice::engine
