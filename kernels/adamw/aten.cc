#include <ATen/TensorOperators.h>

#include <cmath>

#include "kernels/adamw/backends.h"
#include "kernels/aten_boundary.h"
#include "kernels/aten_view.h"

namespace sluice::kernels::aten {

absl::Status Run(const AdamW& args, Stream stream) {
  return CallAten("adamw", stream, [&] {
    const AdamWOptions& options = args.options;
    const double step = static_cast<double>(options.step);
    const double correction1 = 1.0 - std::pow(options.beta1, step);
    const double correction2 = 1.0 - std::pow(options.beta2, step);
    at::Tensor master = AsTensor(args.master);
    at::Tensor exp_avg = AsTensor(args.exp_avg);
    at::Tensor exp_avg_sq = AsTensor(args.exp_avg_sq);
    const at::Tensor grad = AsTensor(args.grad) * options.grad_scale;
    master.mul_(1.0 - options.learning_rate * options.weight_decay);
    exp_avg.lerp_(grad, 1.0 - options.beta1);
    exp_avg_sq.mul_(options.beta2).addcmul_(grad, grad, 1.0 - options.beta2);
    const at::Tensor denominator = (exp_avg_sq.sqrt() / std::sqrt(correction2)).add_(options.eps);
    master.addcdiv_(exp_avg, denominator, -options.learning_rate / correction1);
    if (!args.param.empty()) AsTensor(args.param).copy_(master);
  });
}

}  // namespace sluice::kernels::aten
