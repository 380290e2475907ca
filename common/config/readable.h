// Numbers for people. The same in every locale.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

std::string FormatCount(int64_t value);      // 134,515,008
std::string FormatBytes(int64_t bytes);      // 513.1 MiB
std::string FormatRate(double value);        // 2.5e-05: four significant digits
std::string FormatOneDecimal(double value);  // 12.5, 12

}  // namespace sluice
