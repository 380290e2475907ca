// A fast 128-bit hash (XXH3) of contents, for cache keys and to find damaged files. Not for secrets: whoever wants to
// can make two contents with one hash.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::engine {

class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();
  ContentHasher(const ContentHasher&) = delete;
  ContentHasher& operator=(const ContentHasher&) = delete;

  void Add(std::string_view bytes);
  // Adds the text with its length before it, so that the borders between fields count: ("ab", "c") is not ("a", "bc").
  void AddField(std::string_view text);
  // 32 hexadecimal digits for all that was added so far.
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string ContentHash(std::string_view bytes);

}  // namespace sluice::engine
