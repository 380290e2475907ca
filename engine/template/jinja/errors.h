// Errors inside a template. The interpreter adds "chat template line N: " where it knows the line.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice::engine::jinja {

// Parts joined to one text. absl::StrCat of Abseil 20220623 does not take std::string_view.
template <typename... Parts>
std::string Join(const Parts&... parts) {
  std::string text;
  (text.append(std::string_view(parts)), ...);
  return text;
}

template <typename... Parts>
absl::Status TemplateError(const Parts&... parts) {
  return absl::InvalidArgumentError(Join(parts...));
}

}  // namespace sluice::engine::jinja
