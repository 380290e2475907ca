// The prompts of reinforcement learning, tokenised and held in memory.
//
//   ASSIGN_OR_RETURN(auto prompts, PromptDataset::Open(options, *encoder));
//   ASSIGN_OR_RETURN(StepPrompts step, prompts->PromptsForStep(steps_done));
//   for (int64_t row : step.rows) Rollout(prompts->prompt(row).ids);
//
// Validation: open with shuffle = false and take prompt(0) .. prompt(rows() - 1): every row once, in order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/prompt_encoder.h"
#include "engine/data/prompt_rows.h"
#include "engine/data/sampler.h"
#include "engine/data/truncation.h"

namespace sluice::engine {

struct PromptDatasetOptions {
  std::vector<std::string> files;              // paths and globs
  std::string files_key = "data.train_files";  // the configuration key they come from, for messages
  PromptFormatOptions format;
  int64_t max_prompt_length = 512;  // tokens
  Truncation truncation = Truncation::kError;
  bool filter_overlong_prompts = false;  // leave out (and count) longer prompts, whatever `truncation` says
  int64_t max_rows = -1;                 // the first so many rows; -1: all
  int threads = 1;                       // that tokenise
  int64_t batch_size = 1;                // prompts of a step
  bool shuffle = true;
  uint64_t seed = 0;
};

struct Prompt {
  int64_t sample_id = 0;     // the row's number in the files
  std::vector<int32_t> ids;  // 1 .. max_prompt_length tokens, the generation prompt at their end
  std::string text;          // the rendering they are from, before truncation
  std::string data_source;
  std::string ground_truth;
  std::string extra_info_json;
};

struct PromptStats {
  int64_t rows_read = 0;
  int64_t rows_truncated = 0;
  int64_t rows_filtered = 0;   // left out because they were longer than max_prompt_length
  int64_t longest_prompt = 0;  // tokens, of those kept
};

struct StepPrompts {
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  bool ends_epoch = false;
  std::vector<int64_t> rows;  // for PromptDataset::prompt; batch_size of them, fewer in an epoch's last step
};

// Immutable after Open; threads may share it.
class PromptDataset {
 public:
  // Reads and tokenises all rows. Errors begin with options.files_key and name the file and row: a malformed or empty
  // prompt, one longer than max_prompt_length where `truncation` is kError and nothing filters it, no row that is kept,
  // an option out of range. `encoder` is used during the call only. The result does not depend on `threads`.
  static absl::StatusOr<std::unique_ptr<PromptDataset>> Open(const PromptDatasetOptions& options,
                                                             const PromptEncoder& encoder);

  int64_t rows() const { return static_cast<int64_t>(prompts_.size()); }  // those kept
  // REQUIRES: 0 <= row < rows().
  const Prompt& prompt(int64_t row) const { return prompts_[row]; }
  const PromptStats& stats() const { return stats_; }
  const std::string& format() const { return format_; }  // the one that `auto` chose
  // The distinct data sources, in byte order.
  const std::vector<std::string>& data_sources() const { return data_sources_; }
  // Hash of the prompts kept, their tokens and all that goes with them, in order: equal on every rank of a job.
  const std::string& content_hash() const { return content_hash_; }

  int64_t steps_per_epoch() const { return StepsPerEpoch(sampler_); }

  // A pure function of `step`, the seed and the data. `step` counts from 0 over the whole run.
  // kInvalidArgument: step < 0.
  absl::StatusOr<StepPrompts> PromptsForStep(int64_t step) const;

 private:
  PromptDataset() = default;
  static absl::StatusOr<std::unique_ptr<PromptDataset>> OpenUnnamed(const PromptDatasetOptions& options,
                                                                    const PromptEncoder& encoder);

  std::vector<Prompt> prompts_;
  PromptStats stats_;
  std::string format_;
  std::vector<std::string> data_sources_;
  std::string content_hash_;
  SamplerOptions sampler_;
};

}  // namespace sluice::engine
