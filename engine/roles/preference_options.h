// From a job of preference tuning to the options of its losses and data.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "engine/data/preference_dataset.h"
#include "engine/loss/kto_loss.h"
#include "engine/loss/preference_loss.h"
#include "engine/loss/reward_model_loss.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

struct PreferenceTuning {
  bool pairs = true;                               // false: kto
  std::optional<RewardModelOptions> reward_model;  // bradley_terry, of pairs: values in place of log-probabilities
  PreferenceOptions of_pairs;                      // read where pairs, without reward_model
  KtoOptions kto;                                  // read where not
};

// InvalidArgument names the key.
absl::StatusOr<PreferenceTuning> PreferenceTuningOf(const v1::JobSpec& spec);

// For the training files; and for the validation files, in order.
absl::StatusOr<PreferenceDatasetOptions> TrainPreferenceOptions(const v1::JobSpec& spec);
absl::StatusOr<PreferenceDatasetOptions> ValidationPreferenceOptions(const v1::JobSpec& spec);

}  // namespace sluice::engine
