// From a run-time element type to a template argument.
#pragma once

#include <utility>

#include "kernels/bfloat16.h"
#include "kernels/dtype.h"

namespace sluice::kernels {

// Calls body(T{}) with T = float or BFloat16. REQUIRES: IsFloating(dtype), which every kernel has checked by then.
template <typename Body>
decltype(auto) VisitFloating(DType dtype, Body&& body) {
  if (dtype == DType::kBFloat16) return std::forward<Body>(body)(BFloat16{});
  return std::forward<Body>(body)(float{});
}

}  // namespace sluice::kernels
