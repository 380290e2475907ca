// HTML escapes, for the `escape` filter and for strings marked safe.
#pragma once

#include <string>
#include <string_view>

namespace sluice::engine::jinja {

// & < > ' " become entities, the quotes as numbers.
std::string EscapeHtml(std::string_view text);

}  // namespace sluice::engine::jinja
