// Turns tool call arguments that arrive as JSON text into objects.
#pragma once

#include "absl/status/statusor.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine {

// The messages with each tool_calls[].function.arguments (or tool_calls[].arguments) that is a string holding a JSON
// object replaced by that object. All else stays as it is: the template engine renders what it gets, and this is the
// loader's explicit option. kInvalidArgument "messages[2].tool_calls[0]: arguments: not valid JSON at byte 7" for text
// that is not a JSON object; empty text becomes an empty object.
absl::StatusOr<jinja::Value> ParseToolArguments(const jinja::Value& messages);

}  // namespace sluice::engine
