#include "common/visible_gpus.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {

std::vector<std::string> VisibleGpuIds(const char* visible, int count) {
  std::vector<std::string> ids;
  if (visible == nullptr) {
    for (int gpu = 0; gpu < count; ++gpu) ids.push_back(absl::StrCat(gpu));
    return ids;
  }
  const std::vector<std::string> entries = absl::StrSplit(visible, ',');
  for (const std::string& entry : entries) {
    const std::string id(absl::StripAsciiWhitespace(entry));
    int number = 0;
    const bool numbered = absl::SimpleAtoi(id, &number);
    const bool known = numbered ? number >= 0 && number < count
                                : count > 0 && (absl::StartsWith(id, "GPU-") || absl::StartsWith(id, "MIG-"));
    if (!known) break;
    ids.push_back(id);
  }
  return ids;
}

}  // namespace sluice
