#include "engine/roles/rollout_dump.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

absl::Status FromArrow(const arrow::Status& status, const std::string& path) {
  if (status.ok()) return absl::OkStatus();
  const bool full = status.message().find("No space left") != std::string::npos;
  return absl::Status(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnavailable,
                      absl::StrCat(path, ": ", status.message()));
}

double MeanAdvantage(const Answer& answer) {
  const double sum = std::accumulate(answer.advantage.begin(), answer.advantage.end(), 0.0);
  return answer.advantage.empty() ? 0 : sum / static_cast<double>(answer.advantage.size());
}

arrow::Result<std::shared_ptr<arrow::Table>> TableOf(int64_t step, const PromptDataset& prompts,
                                                     absl::Span<const Answer* const> answers) {
  arrow::Int64Builder steps, places, samples, rows, tokens, versions;
  arrow::StringBuilder sources, prompt_texts, responses, truths;
  arrow::BooleanBuilder truncated, learned;
  arrow::DoubleBuilder scores, advantages;
  for (const Answer* const pointer : answers) {
    const Answer& answer = *pointer;
    const Prompt& prompt = prompts.prompt(answer.row);
    ARROW_RETURN_NOT_OK(steps.Append(step));
    ARROW_RETURN_NOT_OK(places.Append(answer.place));
    ARROW_RETURN_NOT_OK(samples.Append(static_cast<int64_t>(answer.sample)));
    ARROW_RETURN_NOT_OK(rows.Append(answer.row));
    ARROW_RETURN_NOT_OK(sources.Append(prompt.data_source));
    ARROW_RETURN_NOT_OK(prompt_texts.Append(prompt.text));
    ARROW_RETURN_NOT_OK(responses.Append(answer.text));
    ARROW_RETURN_NOT_OK(truths.Append(prompt.ground_truth));
    ARROW_RETURN_NOT_OK(tokens.Append(answer.response_tokens()));
    ARROW_RETURN_NOT_OK(truncated.Append(answer.truncated));
    ARROW_RETURN_NOT_OK(versions.Append(answer.weight_version));
    ARROW_RETURN_NOT_OK(answer.score.has_value() ? scores.Append(*answer.score) : scores.AppendNull());
    ARROW_RETURN_NOT_OK(advantages.Append(MeanAdvantage(answer)));
    ARROW_RETURN_NOT_OK(learned.Append(answer.learned));
  }
  const std::pair<const char*, arrow::ArrayBuilder*> columns[] = {{"step", &steps},
                                                                  {"place", &places},
                                                                  {"sample", &samples},
                                                                  {"row", &rows},
                                                                  {"data_source", &sources},
                                                                  {"prompt", &prompt_texts},
                                                                  {"response", &responses},
                                                                  {"ground_truth", &truths},
                                                                  {"response_tokens", &tokens},
                                                                  {"truncated", &truncated},
                                                                  {"weight_version", &versions},
                                                                  {"score", &scores},
                                                                  {"advantage", &advantages},
                                                                  {"learned", &learned}};
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const auto& [name, builder] : columns) {
    fields.push_back(arrow::field(name, builder->type()));
    ARROW_ASSIGN_OR_RAISE(arrays.emplace_back(), builder->Finish());
  }
  return arrow::Table::Make(arrow::schema(fields), arrays);
}

}  // namespace

absl::Status DumpRollout(const std::string& folder, int64_t step, int rank, const PromptDataset& prompts,
                         absl::Span<const Answer* const> answers) {
  RETURN_IF_ERROR(CreateFolderWithParents(PosixFileSystem(), folder));
  const std::string path = absl::StrCat(folder, "/step_", step, ".rank_", rank, ".parquet");
  const std::string unfinished = path + ".tmp";
  const auto write = [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto table, TableOf(step, prompts, answers));
    ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::FileOutputStream::Open(unfinished));
    ARROW_RETURN_NOT_OK(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file));
    return file->Close();
  };
  RETURN_IF_ERROR(FromArrow(write(), unfinished));
  return PosixFileSystem().Rename(unfinished, path);
}

}  // namespace sluice::engine
