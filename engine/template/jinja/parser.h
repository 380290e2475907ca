// Template source to Program.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/jinja/ast.h"

namespace sluice::engine::jinja {

// kInvalidArgument "chat template line N: ..." for what jinja2 refuses to compile, and for the tags that chat templates
// have no use for: extends, block, include, import, from, do, trans, and recursive loops.
absl::StatusOr<std::unique_ptr<const Program>> Parse(std::string_view source);

}  // namespace sluice::engine::jinja
