#include "common/schedule/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

double HalfCosine(double r) { return 0.5 * (1 + std::cos(std::numbers::pi * r)); }

double StableDecayFactor(StableDecayStyle style, double x) {
  switch (style) {
    case StableDecayStyle::kLinear:
      return 1 - x;
    case StableDecayStyle::kCosine:
      return HalfCosine(x);
    case StableDecayStyle::kExponential:
      return 2 * std::pow(0.5, x) - 1;
    case StableDecayStyle::kMinusSqrt:
      return 1 - std::sqrt(x);
  }
  return 1;
}

// Written so that NaN fails too.
bool IsRatio(double value) { return value >= 0 && value <= 1; }
bool IsNonNegative(double value) { return value >= 0 && std::isfinite(value); }

absl::Status CheckValues(const ScheduleOptions& options) {
  if (!IsNonNegative(options.lr))
    return absl::InvalidArgumentError(absl::StrCat("optim.lr: must be at least 0, is ", options.lr));
  if (!IsRatio(options.init_lr_ratio)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optim.init_lr_ratio: must be between 0 and 1, is ", options.init_lr_ratio));
  }
  if (!IsRatio(options.min_lr_ratio)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optim.min_lr_ratio: must be between 0 and 1, is ", options.min_lr_ratio));
  }
  if (!IsRatio(options.warmup_ratio)) {
    return absl::InvalidArgumentError(
        absl::StrCat("optim.lr_warmup_steps_ratio: must be between 0 and 1, is ", options.warmup_ratio));
  }
  if (!IsNonNegative(options.start_weight_decay) || !IsNonNegative(options.end_weight_decay)) {
    return absl::InvalidArgumentError("optim.weight_decay: must be at least 0");
  }
  if (options.weight_decay_style == WeightDecayStyle::kConstant &&
      options.start_weight_decay != options.end_weight_decay) {
    return absl::InvalidArgumentError(absl::StrCat("optim.wd_incr_style: constant, but start_weight_decay (",
                                                   options.start_weight_decay, ") and end_weight_decay (",
                                                   options.end_weight_decay, ") differ; use linear or cosine"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t WarmupSteps(const ScheduleOptions& options, int64_t total_steps) {
  if (options.warmup_steps > 0) return options.warmup_steps;
  return static_cast<int64_t>(options.warmup_ratio * static_cast<double>(total_steps));
}

Schedule::Schedule(const ScheduleOptions& options, int64_t total_steps)
    : options_(options), total_steps_(total_steps), warmup_steps_(WarmupSteps(options, total_steps)) {}

absl::StatusOr<Schedule> Schedule::Create(const ScheduleOptions& options, int64_t total_steps) {
  if (absl::Status status = CheckValues(options); !status.ok()) return status;
  if (total_steps < 1) {
    return absl::InvalidArgumentError("the run has no update: no rows, or trainer.total_training_steps is 0");
  }
  const int64_t warmup = WarmupSteps(options, total_steps);
  if (warmup >= total_steps) {
    const std::string key = options.warmup_steps > 0 ? "optim.lr_warmup_steps" : "optim.lr_warmup_steps_ratio";
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": warm-up takes ", warmup, " steps, but the run has only ", total_steps,
                     " (the rate would never reach lr); shorten the warm-up to at most ", total_steps - 1));
  }
  if (options.style == DecayStyle::kWarmupStableDecay &&
      (options.decay_steps < 1 || options.decay_steps > total_steps - warmup)) {
    return absl::InvalidArgumentError(absl::StrCat("optim.lr_wsd_decay_steps: WSD needs between 1 and ",
                                                   total_steps - warmup, " decay steps (", total_steps, " in all - ",
                                                   warmup, " of warm-up), got ", options.decay_steps));
  }
  return Schedule(options, total_steps);
}

double Schedule::DecayFactor(int64_t updates_done) const {
  const double r =
      static_cast<double>(updates_done - warmup_steps_) / static_cast<double>(total_steps_ - warmup_steps_);
  if (options_.style == DecayStyle::kLinear) return 1 - r;
  if (options_.style == DecayStyle::kCosine) return HalfCosine(r);
  const int64_t decayed = updates_done - (total_steps_ - options_.decay_steps);
  if (decayed <= 0) return 1;
  return StableDecayFactor(options_.stable_decay_style,
                           static_cast<double>(decayed) / static_cast<double>(options_.decay_steps));
}

double Schedule::LearningRate(int64_t step) const {
  const int64_t n = step - 1;
  const double peak = options_.lr;
  const double initial = peak * options_.init_lr_ratio;
  const double least = peak * options_.min_lr_ratio;
  if (warmup_steps_ > 0 && n <= warmup_steps_) {
    return initial + (peak - initial) * static_cast<double>(n) / static_cast<double>(warmup_steps_);
  }
  if (options_.style == DecayStyle::kConstant) return peak;
  if (n > total_steps_) return least;
  if (options_.style == DecayStyle::kInverseSquareRoot) {
    const double warmup = static_cast<double>(std::max<int64_t>(warmup_steps_, 1));
    return std::max(least, peak * std::sqrt(warmup / static_cast<double>(std::max<int64_t>(n, 1))));
  }
  return least + DecayFactor(n) * (peak - least);
}

double Schedule::WeightDecay(int64_t step) const {
  const double start = options_.start_weight_decay, end = options_.end_weight_decay;
  if (options_.weight_decay_style == WeightDecayStyle::kConstant) return start;
  const int64_t n = step - 1;
  if (n >= total_steps_) return end;
  const double r = static_cast<double>(n) / static_cast<double>(total_steps_);
  const double part = options_.weight_decay_style == WeightDecayStyle::kLinear ? r : HalfCosine(1 - r);
  return start + (end - start) * part;
}

}  // namespace sluice
