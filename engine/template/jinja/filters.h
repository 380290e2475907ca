// The filters: {{ input | name(arguments) }}.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/template/jinja/runtime.h"
#include "engine/template/jinja/value.h"

namespace sluice::engine::jinja {

using FilterFunction = absl::StatusOr<Value> (*)(Runtime& runtime, const Value& input, const Arguments& arguments);

// jinja2's filters, and `tojson` as transformers defines it. Null for an unknown name, and for those of jinja2's that
// make web pages or random choices: filesizeformat, groupby, pprint, random, striptags, urlencode, urlize, wordwrap,
// xmlattr.
FilterFunction FindFilter(std::string_view name);

}  // namespace sluice::engine::jinja
