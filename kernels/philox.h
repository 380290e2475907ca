// Philox4x32-10: random numbers as a pure function of (key, counter), so that every rank, device and thread that asks
// for element i of stream s under seed k gets the same one.
// Source: Salmon, Moraes, Dror & Shaw 2011 (Parallel random numbers: as easy as 1, 2, 3), section 3.3 and table 2.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/host_device.h"

namespace sluice::kernels {

using PhiloxBlock = std::array<uint32_t, 4>;

// Ten rounds by default; seven are the fewest that the paper found no flaw in (table 2), and enough to round with.
template <int kRounds = 10>
SLUICE_HOST_DEVICE constexpr PhiloxBlock Philox(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Block `index` of stream `stream` under `seed`.
template <int kRounds = 10>
SLUICE_HOST_DEVICE constexpr PhiloxBlock Philox(uint64_t seed, uint64_t stream, uint64_t index) {
  return Philox<kRounds>({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                          static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

}  // namespace sluice::kernels
