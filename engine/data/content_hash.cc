#include "engine/data/content_hash.h"

#define XXH_INLINE_ALL
#include <arrow/vendored/xxhash.h>

#include <cstdint>
#include <cstdio>

namespace sluice::engine {

// XXH3's state wants 64-byte alignment, which the type carries and operator new honours.
struct ContentHasher::State {
  XXH3_state_t xxh3;
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }
ContentHasher::~ContentHasher() = default;

void ContentHasher::Add(std::string_view bytes) { XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size()); }

void ContentHasher::AddField(std::string_view text) {
  const uint64_t length = text.size();
  Add({reinterpret_cast<const char*>(&length), sizeof(length)});
  Add(text);
}

std::string ContentHasher::Hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return digits;
}

std::string ContentHash(std::string_view bytes) {
  ContentHasher hasher;
  hasher.Add(bytes);
  return hasher.Hex();
}

}  // namespace sluice::engine
