#include "engine/data/prompt_dataset.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/content_hash.h"
#include "engine/data/encode_rows.h"
#include "engine/data/row_source.h"

namespace sluice::engine {
namespace {

absl::Status CheckOptions(const PromptDatasetOptions& options) {
  const std::pair<const char*, int64_t> at_least_one[] = {{"max_prompt_length", options.max_prompt_length},
                                                          {"batch_size", options.batch_size},
                                                          {"threads", options.threads}};
  for (const auto& [name, value] : at_least_one) {
    if (value < 1) return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", at least 1 expected"));
  }
  return absl::OkStatus();
}

// A row, and what became of its length.
struct PromptRow {
  Prompt prompt;
  bool is_truncated = false;
  bool is_filtered = false;
};

absl::StatusOr<PromptRow> EncodeRow(const Row& row, const PromptFormat& format, const PromptEncoder& encoder,
                                    const PromptDatasetOptions& options) {
  ASSIGN_OR_RETURN(PromptSample sample, format.Convert(row, encoder.has_chat_template()));
  ASSIGN_OR_RETURN(EncodedPrompt encoded, encoder.EncodePrompt(sample.conversation));
  if (encoded.ids.empty()) return absl::InvalidArgumentError("the prompt has no token");
  PromptRow result;
  EncodedRow tokens = {.ids = std::move(encoded.ids), .mask = {}};
  tokens.mask.resize(tokens.ids.size());
  if (options.filter_overlong_prompts) {
    result.is_filtered = static_cast<int64_t>(tokens.ids.size()) > options.max_prompt_length;
  } else {
    absl::StatusOr<bool> truncated = Truncate(options.truncation, options.max_prompt_length, &tokens);
    if (!truncated.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the prompt has ", tokens.ids.size(), " tokens, more than max_prompt_length ", options.max_prompt_length,
          " (raise it, set truncation to left, right or middle, or filter_overlong_prompts)"));
    }
    result.is_truncated = *truncated;
  }
  result.prompt.ids = std::move(tokens.ids);
  result.prompt.text = std::move(encoded.text);
  result.prompt.data_source = std::move(sample.data_source);
  result.prompt.ground_truth = std::move(sample.ground_truth);
  result.prompt.extra_info_json = std::move(sample.extra_info_json);
  return result;
}

std::string HashOf(const std::vector<Prompt>& prompts) {
  ContentHasher hasher;
  for (const Prompt& prompt : prompts) {
    hasher.AddField(absl::StrCat(prompt.sample_id));
    hasher.AddField({reinterpret_cast<const char*>(prompt.ids.data()), prompt.ids.size() * sizeof(int32_t)});
    hasher.AddField(prompt.text);
    hasher.AddField(prompt.data_source);
    hasher.AddField(prompt.ground_truth);
    hasher.AddField(prompt.extra_info_json);
  }
  return hasher.Hex();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PromptDataset>> PromptDataset::Open(const PromptDatasetOptions& options,
                                                                   const PromptEncoder& encoder) {
  absl::StatusOr<std::unique_ptr<PromptDataset>> dataset = OpenUnnamed(options, encoder);
  if (!dataset.ok()) return Annotate(dataset.status(), options.files_key);
  return dataset;
}

absl::StatusOr<std::unique_ptr<PromptDataset>> PromptDataset::OpenUnnamed(const PromptDatasetOptions& options,
                                                                          const PromptEncoder& encoder) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> source, RowSource::Open(options.files, options.max_rows));
  ASSIGN_OR_RETURN(const std::vector<std::string> columns, source->Columns());
  absl::StatusOr<PromptFormat> format = PromptFormat::Resolve(options.format, columns);
  if (!format.ok()) return Annotate(format.status(), source->Where(0));
  ASSIGN_OR_RETURN(std::vector<PromptRow> rows,
                   ConvertRows<PromptRow>(*source, format->columns(), options.threads,
                                          [&](const Row& row) { return EncodeRow(row, *format, encoder, options); }));
  std::unique_ptr<PromptDataset> dataset(new PromptDataset());
  dataset->format_ = format->name();
  PromptStats& stats = dataset->stats_;
  stats.rows_read = source->rows();
  std::set<std::string> data_sources;
  for (size_t i = 0; i < rows.size(); ++i) {
    stats.rows_truncated += rows[i].is_truncated;
    stats.rows_filtered += rows[i].is_filtered;
    if (rows[i].is_filtered) continue;
    Prompt& prompt = dataset->prompts_.emplace_back(std::move(rows[i].prompt));
    prompt.sample_id = static_cast<int64_t>(i);
    stats.longest_prompt = std::max(stats.longest_prompt, static_cast<int64_t>(prompt.ids.size()));
    data_sources.insert(prompt.data_source);
  }
  if (dataset->prompts_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("all ", stats.rows_read,
                                                   " prompts are longer than max_prompt_length ",
                                                   options.max_prompt_length, "; raise it"));
  }
  dataset->data_sources_.assign(data_sources.begin(), data_sources.end());
  dataset->content_hash_ = HashOf(dataset->prompts_);
  dataset->sampler_ = {dataset->rows(), options.batch_size, options.shuffle, options.seed};
  return dataset;
}

absl::StatusOr<StepPrompts> PromptDataset::PromptsForStep(int64_t step) const {
  if (step < 0) return absl::InvalidArgumentError(absl::StrCat("no step ", step));
  StepRows rows = RowsOfStep(sampler_, step);
  return StepPrompts{rows.epoch, rows.step_in_epoch, rows.ends_epoch, std::move(rows.rows)};
}

}  // namespace sluice::engine
