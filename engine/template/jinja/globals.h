// The functions that every template has: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

// A fresh object for one rendering; nullopt for an unknown name.
std::optional<Value> FindGlobal(std::string_view name);

}  // namespace sluice::engine::jinja
