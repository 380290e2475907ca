// What a job of preference tuning takes, by its loss. Pure.
#pragma once

#include <cstdint>

#include "sluice/v1/job.pb.h"

namespace sluice {

// Rows are pairs of a better and a worse answer; false: single answers with a label (kto).
// REQUIRES: a recipe of preference tuning.
bool LearnsFromPairs(const v1::JobSpec& spec);

// Whether preference.loss_type compares with the model as the run began with it.
bool ComparesWithReference(const v1::PreferenceSpec& preference);

// Whether the job's model has a head of one number a token in place of the language-model head: recipe reward_model.
bool TrainsRewardModel(const v1::JobSpec& spec);

// Token sequences that a training row is, in any recipe: two for a pair, which share a micro-batch.
int64_t SequencesPerRow(const v1::JobSpec& spec);

}  // namespace sluice
