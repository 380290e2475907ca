// How large a rollout's cache of keys and values is to be. Pure.
#pragma once

#include <cstdint>

#include "engine/model/parameters.h"
#include "engine/rollout/rollout_types.h"

namespace sluice::engine {

// Tokens of a cache with pages for options.max_num_seqs answers of full length or, where `bytes` hold fewer beside the
// activations, for as many as they hold; for one answer of full length at least. Reads all of `options` but
// cache_tokens.
int64_t CacheTokensWithin(int64_t bytes, const RolloutOptions& options, const Parameters& parameters);

}  // namespace sluice::engine
