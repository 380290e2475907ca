// Python's operators over values, and jinja2's attribute and subscript look-ups. All errors are kInvalidArgument with
// Python's reason, without a line; all results obey the runtime's limits.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/jinja/ast.h"
#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

absl::StatusOr<Value> ApplyBinary(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right);
absl::StatusOr<Value> ApplyUnary(UnaryOperator op, const Value& operand);
absl::StatusOr<bool> Compare(Runtime& runtime, ComparisonOperator op, const Value& left, const Value& right);

// `item in container`.
absl::StatusOr<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

// object.name: a method or attribute of the type first, else the dict's key. Undefined where there is neither.
absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name);

// object[index]: the item first, else, for a string, the attribute of that name. Undefined where there is neither.
absl::StatusOr<Value> GetItem(const Value& object, const Value& index);

// object[start:stop:step]; parts that are not written are None.
absl::StatusOr<Value> GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step);

// The values that a `for` over `value` visits, as a sequence: the characters of a string, the keys of a dict, nothing
// for undefined. Takes a generator's items for good. An error for what cannot be iterated.
absl::StatusOr<Value> Iterate(const Value& value);

// len(value).
absl::StatusOr<int64_t> Length(const Value& value);

// The value as a list index or count: an int that fits, or a bool.
absl::StatusOr<int64_t> AsIndex(const Value& value, std::string_view what);

}  // namespace sluice::engine::jinja
