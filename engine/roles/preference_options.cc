#include "engine/roles/preference_options.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/config/preference.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/truncation.h"

namespace sluice::engine {
namespace {

absl::StatusOr<PreferenceDatasetOptions> CommonOptions(const v1::JobSpec& spec) {
  const v1::DataSpec& data = spec.data();
  PreferenceDatasetOptions options;
  options.columns.prompt = data.prompt_key();
  options.columns.chosen = data.chosen_key();
  options.columns.rejected = data.rejected_key();
  options.columns.margin = data.margin_key();
  options.columns.completion = data.response_key();
  options.columns.label = data.label_key();
  options.columns.tools = data.tools_key();
  options.columns.system_prompt = data.system_prompt();
  options.max_length = data.max_length();
  ASSIGN_OR_RETURN(options.truncation, ParseTruncation(data.truncation()));
  options.threads = data.num_workers();
  options.batch_size = data.train_batch_size();
  options.seed = static_cast<uint64_t>(spec.trainer().seed());
  return options;
}

}  // namespace

absl::StatusOr<PreferenceTuning> PreferenceTuningOf(const v1::JobSpec& spec) {
  const v1::PreferenceSpec& preference = spec.preference();
  PreferenceTuning tuning;
  tuning.pairs = LearnsFromPairs(spec);
  if (!tuning.pairs) {
    tuning.kto = {preference.beta(), preference.desirable_weight(), preference.undesirable_weight()};
    RETURN_IF_ERROR(Annotate(Validate(tuning.kto), "preference"));
    return tuning;
  }
  if (TrainsRewardModel(spec)) {
    tuning.reward_model = {preference.center_rewards_coefficient()};
    return tuning;
  }
  const auto type = ParsePreferenceLoss(preference.loss_type());
  if (!type.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("preference.loss_type: unknown value ", preference.loss_type()));
  }
  tuning.of_pairs = {.type = *type,
                     .beta = preference.beta(),
                     .label_smoothing = preference.label_smoothing(),
                     .simpo_gamma = preference.simpo_gamma()};
  RETURN_IF_ERROR(Annotate(Validate(tuning.of_pairs), "preference"));
  return tuning;
}

absl::StatusOr<PreferenceDatasetOptions> TrainPreferenceOptions(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(PreferenceDatasetOptions options, CommonOptions(spec));
  options.files.assign(spec.data().train_files().begin(), spec.data().train_files().end());
  options.files_key = "data.train_files";
  options.max_rows = spec.data().train_max_samples();
  options.shuffle = spec.data().shuffle();
  return options;
}

absl::StatusOr<PreferenceDatasetOptions> ValidationPreferenceOptions(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(PreferenceDatasetOptions options, CommonOptions(spec));
  options.files.assign(spec.data().val_files().begin(), spec.data().val_files().end());
  options.files_key = "data.val_files";
  options.max_rows = spec.data().val_max_samples();
  options.shuffle = false;
  return options;
}

}  // namespace sluice::engine
