// Python's str() and repr() of values.
#pragma once

#include <cstddef>
#include <string>

#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

// repr(float): the shortest decimal text that reads back as the same double, with an exponent below 1e-4 and from 1e16.
std::string FloatRepr(double value);

// str(value): what {{ value }} prints. Undefined gives "". Text past `max_bytes` may be cut; the caller compares sizes.
std::string Str(const Value& value, size_t max_bytes = std::string::npos);

// repr(value): strings in quotes.
std::string Repr(const Value& value, size_t max_bytes = std::string::npos);

}  // namespace sluice::engine::jinja
