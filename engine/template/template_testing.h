// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "engine/template/chat_template.h"
#include "engine/template/jinja/json.h"

namespace sluice::engine {

inline std::optional<std::string> ReadFileIfThere(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline std::string GoldenText(const std::string& name) {
  const auto text = ReadFileIfThere("tests/golden/template/" + name);
  EXPECT_TRUE(text.has_value()) << name;
  return text.value_or("null");
}

inline jinja::Value ParseOrFail(const std::string& text) {
  const auto value = jinja::ParseJson(text);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : jinja::Value::None();
}

inline jinja::Value Golden(const std::string& name) { return ParseOrFail(GoldenText(name)); }

// A dict's fields by name; empty for what is no dict.
inline std::map<std::string, jinja::Value> Fields(const jinja::Value& value) {
  std::map<std::string, jinja::Value> fields;
  if (!value.is_dict()) return fields;
  for (const auto& [key, field] : value.dict().items()) fields.emplace(key.string(), field);
  return fields;
}

// Compiles and renders in one.
inline absl::StatusOr<RenderedChat> RenderSource(std::string_view source, const jinja::Value& messages,
                                                 const RenderOptions& options) {
  auto chat_template = ChatTemplate::Compile(source);
  if (!chat_template.ok()) return chat_template.status();
  return (*chat_template)->Render(messages, options);
}

// The moment and tokens that tools/oracle/template.py renders with.
inline RenderOptions OracleOptions() {
  RenderOptions options;
  options.now = absl::FromCivil(absl::CivilSecond(2024, 7, 26, 9, 5, 7), absl::UTCTimeZone());
  return options;
}

inline std::string Fnv1a(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex.push_back(kDigits[(hash >> shift) & 15]);
  return hex;
}

}  // namespace sluice::engine
