// Learning rate and weight decay of every update of a run: a pure function of the update's number.
//
// With M = lr, I = lr * init_lr_ratio, m = lr * min_lr_ratio, T = total steps, W = warm-up steps, D = decay_steps and
// n = updates done before (update k uses n = k - 1), the rate f(n) is
//   W > 0 and n <= W      I + (M - I) n / W
//   constant              M
//   n > T                 m
//   inverse-square-root   max(m, M sqrt(max(W, 1) / max(n, 1)))
//   else                  m + c (M - m), with r = (n - W) / (T - W):
//     linear  c = 1 - r     cosine  c = (1 + cos(pi r)) / 2
//     WSD     c = 1 until n = T - D, then with x = (n - (T - D)) / D
//             linear 1 - x, cosine (1 + cos(pi x)) / 2, exponential 2 * 0.5^x - 1, minus_sqrt 1 - sqrt(x)
// and the weight decay, with r = n / T (its end value where n > T):
//   constant  weight_decay     linear  s + (e - s) r     cosine  s + (e - s) (1 + cos(pi (1 - r))) / 2
// This is the OptimizerParamScheduler of Megatron and NeMo Automodel, so runs move here without a change of their
// curve.
//
// What is reported as an update's rate is the rate that was applied to it: f(k - 1), not the next one.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace sluice {

enum class DecayStyle { kConstant, kLinear, kCosine, kInverseSquareRoot, kWarmupStableDecay };
enum class StableDecayStyle { kLinear, kCosine, kExponential, kMinusSqrt };  // the last part of kWarmupStableDecay
enum class WeightDecayStyle { kConstant, kLinear, kCosine };

struct ScheduleOptions {
  double lr = 1e-5;            // peak, >= 0
  double init_lr_ratio = 0.1;  // in [0, 1]
  double min_lr_ratio = 0.01;  // in [0, 1]
  DecayStyle style = DecayStyle::kCosine;
  int64_t warmup_steps = -1;  // > 0 wins over warmup_ratio
  double warmup_ratio = 0;    // of all steps, rounded down
  int64_t decay_steps = 0;    // kWarmupStableDecay: > 0
  StableDecayStyle stable_decay_style = StableDecayStyle::kExponential;
  WeightDecayStyle weight_decay_style = WeightDecayStyle::kConstant;
  double start_weight_decay = 0.01;
  double end_weight_decay = 0.01;
};

// Warm-up steps of a run of `total_steps`.
int64_t WarmupSteps(const ScheduleOptions& options, int64_t total_steps);

class Schedule {
 public:
  // InvalidArgument, naming the configuration key: no steps at all, a warm-up that is not shorter than the run, a WSD
  // decay that is missing or longer than what follows the warm-up, a ratio outside [0, 1], a negative rate or decay, or
  // a constant weight decay whose ends differ.
  static absl::StatusOr<Schedule> Create(const ScheduleOptions& options, int64_t total_steps);

  // REQUIRES: step >= 1, the number of the update (the first is 1). Steps past the end keep the final value.
  double LearningRate(int64_t step) const;
  double WeightDecay(int64_t step) const;

  int64_t total_steps() const { return total_steps_; }
  int64_t warmup_steps() const { return warmup_steps_; }

 private:
  Schedule(const ScheduleOptions& options, int64_t total_steps);
  double DecayFactor(int64_t updates_done) const;

  ScheduleOptions options_;
  int64_t total_steps_;
  int64_t warmup_steps_;
};

}  // namespace sluice
