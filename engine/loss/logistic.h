// Logistic functions that neither overflow nor lose their small values.
#pragma once

#include <cmath>

namespace sluice::engine {

inline double Sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
inline double LogSigmoid(double x) { return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); }

// log(1 - exp(x)), x < 0 (Maechler 2012).
inline double Log1mExp(double x) {
  return x > -0.6931471805599453 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x));
}

}  // namespace sluice::engine
