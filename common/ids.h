// Names that nobody else has: request ids, incarnations of daemons, stores.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// `prefix` and 32 hexadecimal digits: 128 bits from the operating system's random source. Safe from any thread and
// after fork.
std::string NewUniqueId(std::string_view prefix);

}  // namespace sluice
