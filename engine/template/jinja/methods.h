// The methods of Python's str, dict, list and tuple that a template may call.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

using MethodFunction = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& self, const Arguments& arguments);

// The method `name` bound to `self`; Undefined where its type has none by that name, or a mutating one.
Value FindMethod(const Value& self, std::string_view name);

// Whether Python's type has a method of this name that changes the object: the sandbox forbids these.
bool IsMutatingMethod(const Value& self, std::string_view name);

// The method of a string, for the tables in string_methods.cc; null where there is none.
MethodFunction FindStringMethod(std::string_view name);

}  // namespace sluice::engine::jinja
