#include "tools/cli/replay_compare.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/match.h"

namespace sluice::cli {
namespace {

bool TellsOfTheMachine(const std::string& name) {
  return absl::StartsWith(name, "timing_s/") || name == "perf/seconds" || absl::StartsWith(name, "perf/peak_");
}

}  // namespace

std::optional<StepNumbers> NumbersOfStep(const std::string& metrics_jsonl, int64_t step) {
  std::optional<StepNumbers> numbers;
  std::istringstream lines(metrics_jsonl);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A validation of the same step has a line of its own.
    if (!parsed.is_object() || !parsed.contains("train/loss") || !parsed.contains("step") || parsed["step"] != step) {
      continue;
    }
    numbers.emplace();
    for (const auto& [name, value] : parsed.items()) {
      if (!TellsOfTheMachine(name)) (*numbers)[name] = value.dump();
    }
  }
  return numbers;
}

absl::StatusOr<std::map<std::string, std::string>> TensorChecksums(const std::string& manifest_json) {
  const nlohmann::json manifest = nlohmann::json::parse(manifest_json, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("files") || !manifest["files"].is_array()) {
    return absl::InvalidArgumentError("is not the manifest of a checkpoint");
  }
  std::map<std::string, std::string> checksums;
  for (const nlohmann::json& file : manifest["files"]) {
    if (!file.is_object() || !file.contains("name") || !file.contains("crc32c")) {
      return absl::InvalidArgumentError("is not the manifest of a checkpoint");
    }
    const std::string name = file["name"];
    if (absl::EndsWith(name, ".safetensors")) checksums[name] = file["crc32c"];
  }
  return checksums;
}

int64_t CheckpointBefore(const std::vector<int64_t>& steps, int64_t step) {
  int64_t before = 0;
  for (const int64_t candidate : steps) {
    if (candidate < step) before = std::max(before, candidate);
  }
  return before;
}

std::vector<Difference> Differences(const std::map<std::string, std::string>& recorded,
                                    const std::map<std::string, std::string>& again) {
  std::vector<Difference> differences;
  for (const auto& [name, value] : recorded) {
    const auto other = again.find(name);
    if (other == again.end()) {
      differences.push_back({name, value, "-"});
    } else if (other->second != value) {
      differences.push_back({name, value, other->second});
    }
  }
  for (const auto& [name, value] : again) {
    if (!recorded.contains(name)) differences.push_back({name, "-", value});
  }
  std::sort(differences.begin(), differences.end(),
            [](const Difference& a, const Difference& b) { return a.name < b.name; });
  return differences;
}

}  // namespace sluice::cli
