#include "engine/data/sampler.h"

#include <algorithm>
#include <bit>

namespace sluice::engine {
namespace {

// The finaliser of SplitMix64 (Steele, Lea & Flood 2014): every bit of the input moves every bit of the output.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

EpochPermutation::EpochPermutation(int64_t rows, uint64_t seed, int64_t epoch) : rows_(rows) {
  const int bits = std::bit_width(static_cast<uint64_t>(rows - 1));
  half_bits_ = std::max(3, (bits + 1) / 2);
  // Two rounds of mixing between seed and epoch: neighbouring seeds and epochs share no key.
  uint64_t key = Mix(Mix(seed) ^ static_cast<uint64_t>(epoch));
  for (uint64_t& round_key : round_keys_) round_key = key = Mix(key);
}

uint64_t EpochPermutation::Encrypt(uint64_t value) const {
  const uint64_t half_mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & half_mask;
  for (uint64_t round_key : round_keys_) {
    const uint64_t next = left ^ (Mix(right ^ round_key) & half_mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t EpochPermutation::operator()(int64_t place) const {
  uint64_t value = static_cast<uint64_t>(place);
  do {
    value = Encrypt(value);
  } while (value >= static_cast<uint64_t>(rows_));
  return static_cast<int64_t>(value);
}

int64_t StepsPerEpoch(const SamplerOptions& options) {
  return (options.rows + options.batch_size - 1) / options.batch_size;
}

StepRows RowsOfStep(const SamplerOptions& options, int64_t step) {
  const int64_t steps_per_epoch = StepsPerEpoch(options);
  StepRows result;
  result.epoch = step / steps_per_epoch;
  result.step_in_epoch = step % steps_per_epoch;
  result.ends_epoch = result.step_in_epoch == steps_per_epoch - 1;
  const int64_t begin = result.step_in_epoch * options.batch_size;
  const int64_t count = std::min(options.batch_size, options.rows - begin);
  result.rows.reserve(count);
  const EpochPermutation permutation(options.rows, options.seed, result.epoch);
  for (int64_t place = begin; place < begin + count; ++place) {
    result.rows.push_back(options.shuffle ? permutation(place) : place);
  }
  return result;
}

}  // namespace sluice::engine
