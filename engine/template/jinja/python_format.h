// Python's two ways to format into a string.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

// format % values: %s %r %d %i %f %e %g %x %o %c %% with flags, width, precision and %(name)s. `values` is a tuple, a
// dict for names, or a single value. REQUIRES: format.is_string().
absl::StatusOr<Value> FormatPercent(Runtime& runtime, const Value& format, const Value& values);

// format.format(...): {} {0} {name} {0.attribute[key]} with !r and !s and the usual
// [[fill]align][sign][0][width][,][.precision][type].
absl::StatusOr<Value> FormatBraces(Runtime& runtime, std::string_view format, const Arguments& arguments);

}  // namespace sluice::engine::jinja
