#include "engine/data/dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/row_source.h"

namespace sluice::engine {
namespace {

absl::Status CheckOptions(const DatasetOptions& options) {
  const std::pair<const char*, int64_t> at_least_one[] = {
      {"max_length", options.max_length},
      {"batch_size", options.batch_size},
      {"max_tokens_per_micro_batch", options.max_tokens_per_micro_batch}};
  for (const auto& [name, value] : at_least_one) {
    if (value < 1) return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", at least 1 expected"));
  }
  return absl::OkStatus();
}

// A conversation has no other way to become text; for a prompt and its response there is one, but not for a system
// turn.
absl::Status CheckTemplate(const RowFormat& format, const FormatOptions& options, const RowEncoder& encoder) {
  if (encoder.has_chat_template()) return absl::OkStatus();
  if (format.kind() == Sample::Kind::kConversation) {
    return absl::InvalidArgumentError(absl::StrCat("format ", std::string(format.name()),
                                                   " needs a chat template and the model folder has none; set "
                                                   "model.custom_chat_template"));
  }
  if (!options.system_prompt.empty()) {
    return absl::InvalidArgumentError(
        "system_prompt needs a chat template and the model folder has none; set model.custom_chat_template or remove "
        "it");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const DatasetOptions& options, const RowEncoder& encoder,
                                                       FileSystem& file_system) {
  absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenUnnamed(options, encoder, file_system);
  if (!dataset.ok()) return Annotate(dataset.status(), options.files_key);
  return dataset;
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::OpenUnnamed(const DatasetOptions& options, const RowEncoder& encoder,
                                                              FileSystem& file_system) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> source, RowSource::Open(options.files, options.max_rows));
  ASSIGN_OR_RETURN(const std::vector<std::string> columns, source->Columns());
  absl::StatusOr<RowFormat> format = RowFormat::Resolve(options.format, columns);
  if (!format.ok()) return Annotate(format.status(), source->Where(0));
  RETURN_IF_ERROR(CheckTemplate(*format, options.format, encoder));

  std::unique_ptr<Dataset> dataset(new Dataset());
  const TokenCacheOptions cache_options = {.cache_dir = options.cache_dir,
                                           .max_length = options.max_length,
                                           .truncation = options.truncation,
                                           .threads = options.threads,
                                           .progress = options.progress};
  ASSIGN_OR_RETURN(dataset->tokens_, TokenCache::Open(*source, *format, encoder, cache_options, file_system));
  const TokenStats& stats = dataset->stats();
  if (stats.rows_kept == 0) {
    return absl::InvalidArgumentError(absl::StrCat("none of the ", stats.rows_read, " rows has a token to score (",
                                                   stats.rows_truncated, " were truncated to max_length ",
                                                   options.max_length, ")"));
  }
  if (stats.longest_row > options.max_tokens_per_micro_batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the longest row has ", stats.longest_row, " tokens and a micro-batch holds ",
        options.max_tokens_per_micro_batch, "; raise data.max_token_len_per_gpu or lower data.max_length"));
  }
  dataset->format_ = std::string(format->name());
  dataset->sampler_ = {dataset->rows(), options.batch_size, options.shuffle, options.seed};
  dataset->max_tokens_ = options.max_tokens_per_micro_batch;
  dataset->max_sequences_ = options.max_sequences_per_micro_batch;
  return dataset;
}

absl::StatusOr<StepBatches> Dataset::MicroBatchesForStep(int64_t step, int64_t rank, int64_t world_size) const {
  if (step < 0 || rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("no step ", step, " for rank ", rank, " of ", world_size));
  }
  const StepRows step_rows = RowsOfStep(sampler_, step);
  StepBatches result = {.epoch = step_rows.epoch,
                        .step_in_epoch = step_rows.step_in_epoch,
                        .ends_epoch = step_rows.ends_epoch,
                        .rows = static_cast<int64_t>(step_rows.rows.size())};
  std::vector<TokenSpan> spans;
  std::vector<int64_t> lengths;
  for (int64_t row_index : step_rows.rows) {
    spans.push_back(row(row_index));
    lengths.push_back(spans.back().tokens);
    result.scored_tokens += ScorableTokens(spans.back().mask, spans.back().tokens);
  }
  ASSIGN_OR_RETURN(const BatchPlan plan, PlanBatch(lengths, {world_size, max_tokens_, max_sequences_}));
  result.tokens = plan.tokens;
  result.fill_ratio = plan.FillRatio(max_tokens_);
  const std::vector<int64_t> rank_tokens = plan.TokensOfRanks(lengths);
  result.fewest_rank_tokens = *std::min_element(rank_tokens.begin(), rank_tokens.end());
  result.most_rank_tokens = *std::max_element(rank_tokens.begin(), rank_tokens.end());
  for (const std::vector<int32_t>& places : plan.ranks[rank]) {
    std::vector<TokenSpan> sequences;
    for (int32_t place : places) sequences.push_back(spans[place]);
    result.micro_batches.push_back(PackMicroBatch(sequences, max_tokens_));
  }
  return result;
}

}  // namespace sluice::engine
