#include "common/config/schedule_from_spec.h"

#include <string>

namespace sluice {
namespace {

DecayStyle StyleOf(const std::string& text) {
  if (text == "constant") return DecayStyle::kConstant;
  if (text == "linear") return DecayStyle::kLinear;
  if (text == "inverse-square-root") return DecayStyle::kInverseSquareRoot;
  if (text == "WSD") return DecayStyle::kWarmupStableDecay;
  return DecayStyle::kCosine;
}

StableDecayStyle StableStyleOf(const std::string& text) {
  if (text == "linear") return StableDecayStyle::kLinear;
  if (text == "cosine") return StableDecayStyle::kCosine;
  if (text == "minus_sqrt") return StableDecayStyle::kMinusSqrt;
  return StableDecayStyle::kExponential;
}

WeightDecayStyle WeightDecayStyleOf(const std::string& text) {
  if (text == "linear") return WeightDecayStyle::kLinear;
  if (text == "cosine") return WeightDecayStyle::kCosine;
  return WeightDecayStyle::kConstant;
}

}  // namespace

ScheduleOptions ScheduleFromSpec(const v1::OptimSpec& optim) {
  ScheduleOptions options;
  options.lr = optim.lr();
  options.init_lr_ratio = optim.init_lr_ratio();
  options.min_lr_ratio = optim.min_lr_ratio();
  options.style = StyleOf(optim.lr_scheduler_type());
  options.warmup_steps = optim.lr_warmup_steps();
  options.warmup_ratio = optim.lr_warmup_steps_ratio();
  options.decay_steps = optim.lr_wsd_decay_steps();
  options.stable_decay_style = StableStyleOf(optim.lr_wsd_decay_style());
  options.weight_decay_style = WeightDecayStyleOf(optim.wd_incr_style());
  options.start_weight_decay = optim.has_start_weight_decay() ? optim.start_weight_decay() : optim.weight_decay();
  options.end_weight_decay = optim.has_end_weight_decay() ? optim.end_weight_decay() : optim.weight_decay();
  return options;
}

}  // namespace sluice
