// Reading of the tokenizer's golden files in tests.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine::testing {

inline std::string GoldenPath(const std::string& name) { return "tests/golden/tokenizer/" + name; }

inline std::vector<nlohmann::json> ReadLines(const std::string& path) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path << " (tests run in the repository root)";
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) rows.push_back(nlohmann::json::parse(line));
  }
  return rows;
}

inline nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path << " (tests run in the repository root)";
  return nlohmann::json::parse(file);
}

// The small tokenizer tests/golden/tokenizer/<name>.tokenizer.json.
inline std::unique_ptr<const Tokenizer> LoadGolden(const std::string& name) {
  auto tokenizer = Tokenizer::Load(GoldenPath(name + ".tokenizer.json"));
  EXPECT_OK(tokenizer);
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

inline absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadJson(const nlohmann::json& document) {
  const sluice::testing::TempDir folder;
  return Tokenizer::Load(folder.Write("tokenizer.json", document.dump()));
}

}  // namespace sluice::engine::testing
