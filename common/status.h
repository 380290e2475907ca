// Small additions to absl::Status: context, and the CHECK family for programmer errors.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace sluice {

// The same error with "context: " before its message, so that a message reads from the outside in
// ("model.path: /data/qwen: config.json: not JSON at byte 17"). OK stays OK. Payloads are kept.
absl::Status Annotate(const absl::Status& status, std::string_view context);

}  // namespace sluice
