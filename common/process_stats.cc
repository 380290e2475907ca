#include "common/process_stats.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace sluice {
namespace {

double BootTimeSeconds() {
  std::ifstream stat("/proc/stat");
  for (std::string word; stat >> word;) {
    if (word == "btime") {
      double seconds = 0;
      stat >> seconds;
      return seconds;
    }
  }
  return 0;
}

double StartTimeSeconds() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Field 2 is the program's name in parentheses and may hold spaces; the start time is field 22, in clock ticks after
  // boot.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22 && fields >> field; ++number) {
  }
  if (field.empty()) return 0;
  return BootTimeSeconds() + std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessStats ReadProcessStats() {
  static const double start_time_s = StartTimeSeconds();
  ProcessStats stats;
  stats.start_time_s = start_time_s;
  int64_t total_pages = 0, resident_pages = 0;
  if (std::ifstream("/proc/self/statm") >> total_pages >> resident_pages) {
    stats.resident_bytes = resident_pages * sysconf(_SC_PAGESIZE);
  }
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    ++stats.open_fds;
  }
  return stats;
}

}  // namespace sluice
