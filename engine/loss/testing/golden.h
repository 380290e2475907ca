// Reads the golden files of tests/golden/losses: a null is NaN (a masked place), "inf" and "nan" are what they say.
#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/loss/token_batch.h"

namespace sluice::engine::testing {

inline nlohmann::json ReadGolden(const std::string& name) {
  std::ifstream file("tests/golden/losses/" + name);
  return nlohmann::json::parse(file);
}

inline double Number(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nan("");
}

template <typename T = float>
std::vector<T> Numbers(const nlohmann::json& array) {
  std::vector<T> result;
  for (const auto& value : array) result.push_back(static_cast<T>(Number(value)));
  return result;
}

// Sequences one after another; sample numbers count from 0.
struct OwnedBatch {
  std::vector<Sequence> sequences;
  std::vector<uint8_t> mask;

  explicit OwnedBatch(const nlohmann::json& golden) : mask(golden.at("mask").get<std::vector<uint8_t>>()) {
    int64_t begin = 0;
    for (const int64_t length : golden.at("lengths").get<std::vector<int64_t>>()) {
      sequences.push_back({begin, begin + length, sequences.size()});
      begin += length;
    }
  }
  TokenBatch View() const { return {sequences, static_cast<int64_t>(mask.size()), mask}; }
};

// 1e-6 relative, with a floor for values near 0.
inline double Tolerance(double want) { return 1e-6 * std::abs(want) + 1e-8; }

}  // namespace sluice::engine::testing
