// Values of every rank, gathered as bytes.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "engine/comm/communicator.h"

namespace sluice::engine {

template <typename T>
struct GatheredValues {
  std::vector<T> all;    // by rank
  size_t own_begin = 0;  // of this rank's in `all`
};

// Any number on each rank. Collective. Errors as Communicator::AllGather.
template <typename T>
absl::StatusOr<GatheredValues<T>> AllGatherValues(absl::Span<const T> own, Communicator& communicator) {
  static_assert(std::is_trivially_copyable_v<T>, "values go from rank to rank as bytes");
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(T));
  ASSIGN_OR_RETURN(const std::vector<std::string> ranks, communicator.AllGather(bytes));
  GatheredValues<T> gathered;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const size_t begin = gathered.all.size();
    if (static_cast<int>(rank) == communicator.rank()) gathered.own_begin = begin;
    gathered.all.resize(begin + ranks[rank].size() / sizeof(T));
    if (!ranks[rank].empty()) std::memcpy(gathered.all.data() + begin, ranks[rank].data(), ranks[rank].size());
  }
  return gathered;
}

}  // namespace sluice::engine
