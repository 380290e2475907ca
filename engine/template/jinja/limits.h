// What one rendering may use, so that a hostile template ends with an error instead of taking the machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::engine::jinja {

struct Limits {
  size_t max_output_bytes = size_t{16} << 20;  // of the rendering, and of any string on the way
  size_t max_list_items = size_t{1} << 20;
  int64_t max_steps = 50'000'000;  // loop iterations, calls, comparisons of elements, KiB of text made
  int max_call_depth = 150;        // macros within macros; Python's own limit allows about as many
  int max_stack_depth = 1500;      // nodes of the template under evaluation at once
  int64_t max_namespaces = 1'000'000;
};

// Nesting of expressions and statements in a template's source, and of values.
inline constexpr int kMaxNesting = 200;

}  // namespace sluice::engine::jinja
