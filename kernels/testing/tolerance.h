// The tolerances of kernel tests, in one place. A kernel computes in fp32 and rounds its result once, so against a
// double-precision reference an fp32 result is off by the rounding of its sums and a bf16 one by half a unit besides.
#pragma once

#include "kernels/dtype.h"

namespace sluice::kernels::testing {

struct Tolerance {
  double relative;
  double absolute;
};

// For results made of a few dozen operations on values of order one.
constexpr Tolerance ToleranceOf(DType dtype) {
  return dtype == DType::kBFloat16 ? Tolerance{.relative = 4.2e-3, .absolute = 1e-3}  // 2^-8 and a little
                                   : Tolerance{.relative = 1e-5, .absolute = 2e-6};
}

// For sums of `terms` products of order one: rounding errors add up like a random walk.
inline Tolerance SumTolerance(DType dtype, double terms) {
  double root = 1.0;
  while (root * root < terms) root *= 1.4142135623730951;
  Tolerance tolerance = ToleranceOf(dtype);
  tolerance.absolute += 1e-6 * root;
  if (dtype == DType::kBFloat16) tolerance.absolute += 1e-3;
  return tolerance;
}

}  // namespace sluice::kernels::testing
