#include <cmath>

#include "kernels/adamw/backends.h"
#include "kernels/parallel.h"

namespace sluice::kernels::cpu {
namespace {

// The scalars of a step: computed in double and rounded once, as PyTorch's are.
struct Factors {
  float decay, first, beta2, second, root_correction, eps, step_size, grad_scale;
};

Factors FactorsOf(const AdamWOptions& options) {
  const double step = static_cast<double>(options.step);
  const double correction1 = 1.0 - std::pow(options.beta1, step);
  const double correction2 = 1.0 - std::pow(options.beta2, step);
  return {.decay = static_cast<float>(1.0 - options.learning_rate * options.weight_decay),
          .first = static_cast<float>(1.0 - options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .second = static_cast<float>(1.0 - options.beta2),
          .root_correction = static_cast<float>(std::sqrt(correction2)),
          .eps = static_cast<float>(options.eps),
          .step_size = static_cast<float>(options.learning_rate / correction1),
          .grad_scale = static_cast<float>(options.grad_scale)};
}

void Update(const Factors& f, const float* grad, int64_t count, float* master, float* exp_avg, float* exp_avg_sq) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = grad[i] * f.grad_scale;
    const float m = exp_avg[i] + f.first * (g - exp_avg[i]);
    const float v = exp_avg_sq[i] * f.beta2 + f.second * g * g;
    const float denominator = std::sqrt(v) / f.root_correction + f.eps;
    master[i] = master[i] * f.decay - f.step_size * m / denominator;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
  }
}

}  // namespace

absl::Status Run(const AdamW& args, Stream) {
  const Factors factors = FactorsOf(args.options);
  float* master = args.master.as<float>();
  ParallelFor(args.master.dim(0), GrainOf(4), [&](int64_t begin, int64_t end) {
    Update(factors, args.grad.as<float>() + begin, end - begin, master + begin, args.exp_avg.as<float>() + begin,
           args.exp_avg_sq.as<float>() + begin);
    if (args.param.empty()) return;
    if (args.param.dtype == DType::kFloat32) {
      for (int64_t i = begin; i < end; ++i) args.param.as<float>()[i] = master[i];
    } else {
      for (int64_t i = begin; i < end; ++i) args.param.as<BFloat16>()[i] = BFloat16(master[i]);
    }
  });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
