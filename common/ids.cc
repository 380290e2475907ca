#include "common/ids.h"

#include <sys/random.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace sluice {

std::string NewUniqueId(std::string_view prefix) {
  uint8_t bytes[16];
  size_t filled = 0;
  while (filled < sizeof(bytes)) {
    const ssize_t got = getrandom(bytes + filled, sizeof(bytes) - filled, 0);
    // Only EINTR can happen here; a kernel without getrandom cannot run this program at all.
    if (got > 0) filled += static_cast<size_t>(got);
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id(prefix);
  for (const uint8_t byte : bytes) {
    id += kDigits[byte >> 4];
    id += kDigits[byte & 15];
  }
  return id;
}

}  // namespace sluice
