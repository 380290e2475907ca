#include "common/config/config_error.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {

std::string ToString(const ConfigError& error) {
  std::string text = error.source;
  if (error.line > 0) absl::StrAppend(&text, text.empty() ? "line " : ":", error.line);
  if (!text.empty()) text += ": ";
  if (!error.path.empty()) absl::StrAppend(&text, error.path, ": ");
  return text + error.message;
}

absl::Status ToStatus(const std::vector<ConfigError>& errors) {
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(
      errors, "\n", [](std::string* out, const ConfigError& error) { absl::StrAppend(out, ToString(error)); }));
}

}  // namespace sluice
