#include "engine/roles/answer_columns.h"

#include <arrow/api.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status_macros.h"
#include "engine/exchange/batch_store.h"

namespace sluice::engine {
namespace {

constexpr char kOp[] = "op";
constexpr char kMetrics[] = "metrics";
constexpr char kPromptRows[] = "prompt_rows";
constexpr char kPromptBatches[] = "prompt_batches";

// Columns of one batch as they are built.
class Columns {
 public:
  template <typename Builder, typename Value>
  arrow::Status Add(const std::string& name, absl::Span<const Answer* const> answers, Value value) {
    Builder builder;
    for (const Answer* answer : answers) ARROW_RETURN_NOT_OK(builder.Append(value(*answer)));
    return Finish(name, &builder);
  }

  template <typename Builder, typename Value>
  arrow::Status AddList(const std::string& name, absl::Span<const Answer* const> answers, Value value) {
    const auto values = std::make_shared<Builder>();
    arrow::ListBuilder builder(arrow::default_memory_pool(), values);
    for (const Answer* answer : answers) {
      ARROW_RETURN_NOT_OK(builder.Append());
      const auto& list = value(*answer);
      ARROW_RETURN_NOT_OK(values->AppendValues(list.data(), static_cast<int64_t>(list.size())));
    }
    return Finish(name, &builder);
  }

  arrow::Status AddScores(absl::Span<const Answer* const> answers) {
    arrow::DoubleBuilder builder;
    for (const Answer* answer : answers) {
      ARROW_RETURN_NOT_OK(answer->score.has_value() ? builder.Append(*answer->score) : builder.AppendNull());
    }
    return Finish("score", &builder);
  }

  std::shared_ptr<arrow::RecordBatch> Batch(int64_t rows, std::shared_ptr<arrow::KeyValueMetadata> metadata) const {
    return arrow::RecordBatch::Make(arrow::schema(fields_, std::move(metadata)), rows, arrays_);
  }

 private:
  arrow::Status Finish(const std::string& name, arrow::ArrayBuilder* builder) {
    fields_.push_back(arrow::field(name, builder->type()));
    return builder->Finish(&arrays_.emplace_back());
  }

  arrow::FieldVector fields_;
  arrow::ArrayVector arrays_;
};

arrow::Status AddGenerated(absl::Span<const Answer* const> answers, Columns* columns) {
  ARROW_RETURN_NOT_OK(columns->Add<arrow::Int64Builder>("row", answers, [](const Answer& a) { return a.row; }));
  ARROW_RETURN_NOT_OK(columns->AddList<arrow::Int32Builder>(
      "response_ids", answers, [](const Answer& a) -> const std::vector<int32_t>& { return a.response_ids; }));
  ARROW_RETURN_NOT_OK(columns->AddList<arrow::FloatBuilder>(
      "rollout_log_prob", answers, [](const Answer& a) -> const std::vector<float>& { return a.rollout_log_prob; }));
  ARROW_RETURN_NOT_OK(columns->Add<arrow::StringBuilder>("text", answers, [](const Answer& a) { return a.text; }));
  ARROW_RETURN_NOT_OK(
      columns->Add<arrow::BooleanBuilder>("truncated", answers, [](const Answer& a) { return a.truncated; }));
  return columns->Add<arrow::Int64Builder>("weight_version", answers, [](const Answer& a) { return a.weight_version; });
}

arrow::Status AddScored(absl::Span<const Answer* const> answers, Columns* columns) {
  ARROW_RETURN_NOT_OK(columns->AddScores(answers));
  ARROW_RETURN_NOT_OK(columns->AddList<arrow::DoubleBuilder>(
      "components", answers, [](const Answer& a) -> const std::vector<double>& { return a.components; }));
  return columns->Add<arrow::StringBuilder>("extracted", answers, [](const Answer& a) { return a.extracted; });
}

// Whether the op's answers are new to who reads them.
bool Creates(const std::string& op) { return op == "generate" || op == "filter"; }

arrow::Status AddOf(const std::string& op, absl::Span<const Answer* const> answers, Columns* columns) {
  if (Creates(op)) ARROW_RETURN_NOT_OK(AddGenerated(answers, columns));
  if (op == "reward" || op == "filter") ARROW_RETURN_NOT_OK(AddScored(answers, columns));
  if (op != "ref_logprob") return arrow::Status::OK();
  return columns->AddList<arrow::FloatBuilder>(
      "ref_log_prob", answers, [](const Answer& a) -> const std::vector<float>& { return a.ref_log_prob; });
}

// A column of a batch by its name and type; null where it has none.
template <typename Array>
const Array* Column(const arrow::RecordBatch& batch, const std::string& name) {
  return dynamic_cast<const Array*>(batch.GetColumnByName(name).get());
}

template <typename Array, typename Value>
void ReadList(const arrow::ListArray& lists, int64_t row, std::vector<Value>* out) {
  const auto& values = static_cast<const Array&>(*lists.values());
  out->assign(values.raw_values() + lists.value_offset(row), values.raw_values() + lists.value_offset(row + 1));
}

absl::Status Malformed(const std::string& what) {
  return absl::InternalError(absl::StrCat("samples of another engine: ", what));
}

// The columns that are there, of one row. What `generate` and the others make have no name in common.
void ReadRow(const arrow::RecordBatch& batch, int64_t row, Answer* answer) {
  if (const auto* ids = Column<arrow::ListArray>(batch, "response_ids")) {
    ReadList<arrow::Int32Array>(*ids, row, &answer->response_ids);
  }
  if (const auto* log_prob = Column<arrow::ListArray>(batch, "rollout_log_prob")) {
    ReadList<arrow::FloatArray>(*log_prob, row, &answer->rollout_log_prob);
  }
  if (const auto* text = Column<arrow::StringArray>(batch, "text")) answer->text = text->GetString(row);
  if (const auto* truncated = Column<arrow::BooleanArray>(batch, "truncated"))
    answer->truncated = truncated->Value(row);
  if (const auto* version = Column<arrow::Int64Array>(batch, "weight_version")) {
    answer->weight_version = version->Value(row);
  }
  if (const auto* score = Column<arrow::DoubleArray>(batch, "score"); score != nullptr && score->IsValid(row)) {
    answer->score = score->Value(row);
  }
  if (const auto* components = Column<arrow::ListArray>(batch, "components")) {
    ReadList<arrow::DoubleArray>(*components, row, &answer->components);
  }
  if (const auto* extracted = Column<arrow::StringArray>(batch, "extracted")) {
    answer->extracted = extracted->GetString(row);
  }
  if (const auto* log_prob = Column<arrow::ListArray>(batch, "ref_log_prob")) {
    ReadList<arrow::FloatArray>(*log_prob, row, &answer->ref_log_prob);
  }
}

// What a filter says of the step's prompts.
absl::Status ReadPrompts(const arrow::KeyValueMetadata& metadata, const PromptDataset& prompts, ColumnsOrigin* origin) {
  const auto rows = metadata.Get(kPromptRows), batches = metadata.Get(kPromptBatches);
  if (!rows.ok() || !batches.ok() || !absl::SimpleAtoi(*batches, &origin->prompt_batches)) {
    return Malformed("they do not say which prompts were chosen");
  }
  for (const absl::string_view text : absl::StrSplit(*rows, ',', absl::SkipEmpty())) {
    int64_t& row = origin->prompt_rows.emplace_back();
    if (!absl::SimpleAtoi(text, &row) || row < 0 || row >= prompts.rows()) {
      return Malformed(absl::StrCat("there is no prompt ", text));
    }
  }
  return absl::OkStatus();
}

bool IsBefore(const Answer& a, const Answer& b) {
  return std::make_pair(a.place, a.sample) < std::make_pair(b.place, b.sample);
}

}  // namespace

bool HasColumns(const std::string& op) { return Creates(op) || op == "reward" || op == "ref_logprob"; }

absl::StatusOr<std::shared_ptr<arrow::RecordBatch>> ColumnsOf(const ColumnsOrigin& origin,
                                                              absl::Span<const Answer> answers,
                                                              absl::Span<const Answer> baselines) {
  std::vector<const Answer*> rows;
  for (const Answer& answer : answers) rows.push_back(&answer);
  for (const Answer& answer : baselines) rows.push_back(&answer);
  std::vector<bool> is_baseline(rows.size(), false);
  std::fill(is_baseline.begin() + static_cast<ptrdiff_t>(answers.size()), is_baseline.end(), true);
  Columns columns;
  const arrow::Status built = [&]() -> arrow::Status {
    ARROW_RETURN_NOT_OK(columns.Add<arrow::Int64Builder>(kPlaceColumn, rows, [](const Answer& a) { return a.place; }));
    ARROW_RETURN_NOT_OK(columns.Add<arrow::Int64Builder>(
        "sample", rows, [](const Answer& a) { return static_cast<int64_t>(a.sample); }));
    size_t next = 0;
    ARROW_RETURN_NOT_OK(columns.Add<arrow::BooleanBuilder>("baseline", rows,
                                                           [&](const Answer&) -> bool { return is_baseline[next++]; }));
    return AddOf(origin.op, rows, &columns);
  }();
  if (!built.ok()) return absl::InternalError(built.ToString());
  auto metadata = arrow::key_value_metadata({{kOp, origin.op}, {kMetrics, origin.metrics.Serialize()}});
  if (origin.op == "filter") {
    metadata->Append(kPromptRows, absl::StrJoin(origin.prompt_rows, ","));
    metadata->Append(kPromptBatches, absl::StrCat(origin.prompt_batches));
  }
  return columns.Batch(static_cast<int64_t>(rows.size()), std::move(metadata));
}

std::string OpOf(const arrow::RecordBatch& batch) {
  const auto& metadata = batch.schema()->metadata();
  return metadata == nullptr ? "" : metadata->Get(kOp).ValueOr("");
}

absl::StatusOr<ColumnsOrigin> TakeColumns(const arrow::RecordBatch& batch, const PromptDataset& prompts,
                                          std::vector<Answer>* answers, std::vector<Answer>* baselines) {
  ColumnsOrigin origin;
  const auto& metadata = batch.schema()->metadata();
  if (metadata == nullptr || !metadata->Contains(kOp) || !metadata->Contains(kMetrics)) {
    return Malformed("they do not say what made them");
  }
  origin.op = metadata->Get(kOp).ValueOrDie();
  RETURN_IF_ERROR(origin.metrics.Merge(metadata->Get(kMetrics).ValueOrDie()));
  if (origin.op == "filter") RETURN_IF_ERROR(ReadPrompts(*metadata, prompts, &origin));
  const auto* place = Column<arrow::Int64Array>(batch, kPlaceColumn);
  const auto* sample = Column<arrow::Int64Array>(batch, "sample");
  const auto* baseline = Column<arrow::BooleanArray>(batch, "baseline");
  const auto* prompt = Column<arrow::Int64Array>(batch, "row");
  const bool creates = Creates(origin.op);
  if (place == nullptr || sample == nullptr || baseline == nullptr || creates != (prompt != nullptr)) {
    return Malformed("a column is missing");
  }
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    std::vector<Answer>& list = baseline->Value(row) ? *baselines : *answers;
    Answer key;
    key.place = place->Value(row);
    key.sample = static_cast<uint64_t>(sample->Value(row));
    if (creates) {
      key.row = prompt->Value(row);
      if (key.row < 0 || key.row >= prompts.rows()) return Malformed(absl::StrCat("there is no prompt ", key.row));
      key.prompt_ids = &prompts.prompt(key.row).ids;
      list.push_back(std::move(key));
      ReadRow(batch, row, &list.back());
      continue;
    }
    const auto at = std::lower_bound(list.begin(), list.end(), key, IsBefore);
    if (at == list.end() || IsBefore(key, *at)) {
      return Malformed(absl::StrCat("answer ", key.sample, " to prompt ", key.place, " is not here"));
    }
    ReadRow(batch, row, &*at);
  }
  if (!creates) return origin;
  for (std::vector<Answer>* list : {answers, baselines}) {
    std::sort(list->begin(), list->end(), IsBefore);
    const auto twice = std::adjacent_find(list->begin(), list->end(),
                                          [](const Answer& a, const Answer& b) { return !IsBefore(a, b); });
    if (twice != list->end()) {
      return Malformed(absl::StrCat("answer ", twice->sample, " to prompt ", twice->place, " came twice"));
    }
  }
  return origin;
}

}  // namespace sluice::engine
