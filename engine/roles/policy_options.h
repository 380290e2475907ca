// From a job's specification to the options of reinforcement learning's parts: the only place that knows both.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/advantage/advantage.h"
#include "engine/advantage/kl_penalty.h"
#include "engine/advantage/rollout_correction.h"
#include "engine/data/prompt_dataset.h"
#include "engine/loss/policy_loss.h"
#include "engine/model/parameters.h"
#include "engine/roles/token_selection.h"
#include "engine/rollout/rollout_types.h"
#include "sluice/v1/job.pb.h"

namespace sluice::engine {

// Everything of the specification that the stages read. Constant over a run.
struct PolicyOptions {
  AdvantageOptions advantage;
  PolicyLossOptions loss;
  double loss_scale_factor = 0;
  KlType kl_penalty;
  KlControllerOptions kl_controller;
  TokenSelectionOptions selection;  // read where the loss selects
  RolloutCorrectionOptions correction;
  std::string filter_metric;           // of algorithm.filter_groups; empty: no group is left out
  SamplingParams sampling;             // of training; max_new_tokens and seed are in it
  SamplingParams validation_sampling;  // likewise
  float temperature = 1.0f;            // of log-probabilities: the sampling's, 1 where that is greedy
};

// InvalidArgument, naming the key.
absl::StatusOr<PolicyOptions> PolicyOptionsOf(const v1::JobSpec& spec);

absl::StatusOr<PromptDatasetOptions> TrainPromptOptions(const v1::JobSpec& spec);
absl::StatusOr<PromptDatasetOptions> ValidationPromptOptions(const v1::JobSpec& spec);

// What loss_agg_mode seq-mean-token-sum-norm divides by.
double LossScaleFactor(const v1::JobSpec& spec);

// The sizes of the rollout engine for this model. `free_bytes`: of the GPU's memory, before its cache is allocated;
// none: on the CPU. Where rollout.kv_cache_tokens is 0 the cache on a GPU has pages for all answers that are generated
// at once, at full length, or as many as rollout.gpu_memory_utilization of the free memory holds beside the
// activations; never less than one answer of full length.
RolloutOptions RolloutOptionsOf(const v1::JobSpec& spec, const Parameters& parameters,
                                std::optional<int64_t> free_bytes);

}  // namespace sluice::engine
