#include "common/glob.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace sluice {

std::vector<std::string> Glob(const std::string& pattern, FileSystem& file_system) {
  const auto is_file = [&](const std::string& path) {
    const auto entry = file_system.Stat(path);
    return entry.ok() && !entry->is_folder;
  };
  if (is_file(pattern)) return {pattern};
  const auto is_pattern = [](const std::string& text) { return text.find_first_of("*?[") != std::string::npos; };
  std::vector<std::string> paths = {absl::StartsWith(pattern, "/") ? "/" : ""};
  const std::vector<std::string> parts = absl::StrSplit(pattern, '/', absl::SkipEmpty());
  for (const std::string& part : parts) {
    std::vector<std::string> longer;
    for (const std::string& path : paths) {
      if (!is_pattern(part)) {
        longer.push_back(JoinPath(path, part));
        continue;
      }
      const auto entries = file_system.ListFolder(path.empty() ? "." : path);
      if (!entries.ok()) continue;
      for (const FolderEntry& entry : *entries) {
        if (fnmatch(part.c_str(), entry.name.c_str(), FNM_PERIOD) == 0) longer.push_back(JoinPath(path, entry.name));
      }
    }
    paths = std::move(longer);
  }
  paths.erase(std::remove_if(paths.begin(), paths.end(), [&](const std::string& path) { return !is_file(path); }),
              paths.end());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace sluice
