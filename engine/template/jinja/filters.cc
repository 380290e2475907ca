#include "engine/template/jinja/filters.h"

#include "engine/template/jinja/filter_tables.h"

namespace sluice::engine::jinja {

FilterFunction FindFilter(std::string_view name) {
  for (const auto filters : {TextFilters(), NumberFilters(), SequenceFilters(), SelectionFilters()}) {
    for (const NamedFilter& filter : filters) {
      if (filter.name == name) return filter.function;
    }
  }
  return nullptr;
}

}  // namespace sluice::engine::jinja
