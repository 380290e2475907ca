// How the files that hold filters hand them to FindFilter.
#pragma once

#include <span>
#include <string_view>

#include "engine/template/jinja/filters.h"

namespace sluice::engine::jinja {

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};

std::span<const NamedFilter> TextFilters();
std::span<const NamedFilter> NumberFilters();
std::span<const NamedFilter> SequenceFilters();
std::span<const NamedFilter> SelectionFilters();

}  // namespace sluice::engine::jinja
