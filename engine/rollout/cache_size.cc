#include "engine/rollout/cache_size.h"

#include <algorithm>

#include "engine/rollout/rollout_engine.h"

namespace sluice::engine {

int64_t CacheTokensWithin(int64_t bytes, const RolloutOptions& options, const Parameters& parameters) {
  const int64_t page = options.block_size;
  // An answer's last page is its own, full or not.
  const int64_t of_one = (options.max_model_len + page - 1) / page * page;
  const int64_t of_all = options.max_num_seqs * of_one;
  const auto bytes_for = [&](int64_t tokens) {
    RolloutOptions sized = options;
    sized.cache_tokens = tokens;
    return RolloutEngine::BytesFor(parameters, sized);
  };
  const int64_t least = bytes_for(of_one), most = bytes_for(of_all);
  if (most <= bytes || of_all == of_one) return of_all;
  const double of_token = static_cast<double>(most - least) / static_cast<double>(of_all - of_one);
  const double more = static_cast<double>(std::max<int64_t>(bytes - least, 0)) / of_token;
  return of_one + static_cast<int64_t>(more) / page * page;
}

}  // namespace sluice::engine
