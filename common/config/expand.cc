#include "common/config/expand.h"

#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/scalar.h"

namespace sluice {
namespace {

bool IsName(const std::string& text) {
  if (text.empty() || absl::ascii_isdigit(text[0])) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && c != '_') return false;
  }
  return true;
}

// `reference` is what stands between `${` and `}`.
absl::StatusOr<std::string> Resolve(const std::string& reference, const EnvLookup& env) {
  const size_t comma = reference.find(',');
  const std::string name = reference.substr(0, comma);
  if (!IsName(name)) {
    return absl::InvalidArgumentError(absl::StrCat("${", reference,
                                                   "} is no reference to an environment variable "
                                                   "(write ${NAME} or ${NAME,default}; $${ for the characters ${)"));
  }
  if (auto value = env(name)) return *std::move(value);
  if (comma != std::string::npos) return reference.substr(comma + 1);
  return absl::InvalidArgumentError(
      absl::StrCat("environment variable ", name, " is not set (set it, or write ${", name, ",default})"));
}

}  // namespace

EnvLookup ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

absl::StatusOr<std::string> ExpandEnvironment(const std::string& text, const EnvLookup& env) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, 3, "$${") == 0) {
      out += "${";
      at += 3;
      continue;
    }
    if (text.compare(at, 2, "${") != 0) {
      out += text[at++];
      continue;
    }
    const size_t close = text.find('}', at);
    if (close == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("${ without a closing } in ", Quoted(text), " ($${ for the characters ${)"));
    }
    auto value = Resolve(text.substr(at + 2, close - at - 2), env);
    if (!value.ok()) return value.status();
    out += *value;
    at = close + 1;
  }
  return out;
}

absl::StatusOr<std::string> ExpandPath(const std::string& path, const std::string& working_folder,
                                       const EnvLookup& env) {
  if (path.empty()) return path;
  std::filesystem::path expanded = path;
  if (path[0] == '~') {
    if (path.size() > 1 && path[1] != '/') {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(path), ": only ~ and ~/ are expanded, not another user's folder"));
    }
    const auto home = env("HOME");
    if (!home || home->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(path), ": ~ needs the environment variable HOME, which is not set"));
    }
    expanded = *home + path.substr(1);
  }
  std::string result = (std::filesystem::path(working_folder) / expanded).lexically_normal().string();
  if (result.size() > 1 && absl::EndsWith(result, "/")) result.pop_back();
  return result;
}

}  // namespace sluice
