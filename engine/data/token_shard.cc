#include "engine/data/token_shard.h"

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/data/truncation.h"

namespace sluice::engine {
namespace {

struct StatField {
  const char* name;
  int64_t TokenStats::*value;
};

constexpr StatField kStatFields[] = {
    {"rows_read", &TokenStats::rows_read},
    {"rows_kept", &TokenStats::rows_kept},
    {"rows_truncated", &TokenStats::rows_truncated},
    {"rows_dropped", &TokenStats::rows_dropped},
    {"tokens", &TokenStats::tokens},
    {"scored_tokens", &TokenStats::scored_tokens},
    {"longest_row", &TokenStats::longest_row},
};

std::shared_ptr<arrow::Schema> ShardSchema(std::shared_ptr<const arrow::KeyValueMetadata> metadata = nullptr) {
  return arrow::schema(
      {arrow::field("row_id", arrow::int64(), false),
       arrow::field("input_ids", arrow::large_list(arrow::field("item", arrow::int32(), false)), false),
       arrow::field("mask", arrow::large_list(arrow::field("item", arrow::uint8(), false)), false)},
      std::move(metadata));
}

// A view; the vector outlives the array.
template <typename T>
std::shared_ptr<arrow::ArrayData> Flat(const std::shared_ptr<arrow::DataType>& type, const std::vector<T>& values) {
  return arrow::ArrayData::Make(type, static_cast<int64_t>(values.size()), {nullptr, arrow::Buffer::Wrap(values)}, 0);
}

std::shared_ptr<arrow::Array> ListOver(const std::shared_ptr<arrow::DataType>& type,
                                       const std::vector<int64_t>& offsets, std::shared_ptr<arrow::ArrayData> items) {
  return arrow::MakeArray(arrow::ArrayData::Make(type, static_cast<int64_t>(offsets.size()) - 1,
                                                 {nullptr, arrow::Buffer::Wrap(offsets)}, {std::move(items)}, 0));
}

absl::Status Write(const arrow::RecordBatch& batch, std::string* bytes) {
  const auto failed = [](const arrow::Status& status) { return absl::InternalError(status.message()); };
  auto sink = arrow::io::BufferOutputStream::Create();
  if (!sink.ok()) return failed(sink.status());
  auto writer = arrow::ipc::MakeFileWriter(*sink, batch.schema());
  if (!writer.ok()) return failed(writer.status());
  if (const auto status = (*writer)->WriteRecordBatch(batch); !status.ok()) return failed(status);
  if (const auto status = (*writer)->Close(); !status.ok()) return failed(status);
  auto buffer = (*sink)->Finish();
  if (!buffer.ok()) return failed(buffer.status());
  *bytes = (*buffer)->ToString();
  return absl::OkStatus();
}

}  // namespace

void TokenStats::Add(const TokenStats& other) {
  for (const StatField& field : kStatFields) {
    if (field.value != &TokenStats::longest_row) this->*field.value += other.*field.value;
  }
  longest_row = std::max(longest_row, other.longest_row);
}

void TokenShardBuilder::Add(int64_t row_id, const EncodedRow& row, bool was_truncated) {
  ++stats_.rows_read;
  stats_.rows_truncated += was_truncated;
  const int64_t scored = ScorableTokens(row);
  if (scored == 0) {
    ++stats_.rows_dropped;
    return;
  }
  const int64_t length = static_cast<int64_t>(row.ids.size());
  ++stats_.rows_kept;
  stats_.tokens += length;
  stats_.scored_tokens += scored;
  stats_.longest_row = std::max(stats_.longest_row, length);
  row_ids_.push_back(row_id);
  ids_.insert(ids_.end(), row.ids.begin(), row.ids.end());
  mask_.insert(mask_.end(), row.mask.begin(), row.mask.end());
  offsets_.push_back(static_cast<int64_t>(ids_.size()));
}

absl::StatusOr<std::string> TokenShardBuilder::Serialize() const {
  auto metadata = std::make_shared<arrow::KeyValueMetadata>();
  for (const StatField& field : kStatFields) metadata->Append(field.name, std::to_string(stats_.*field.value));
  const std::shared_ptr<arrow::Schema> schema = ShardSchema(metadata);
  const auto batch =
      arrow::RecordBatch::Make(schema, static_cast<int64_t>(row_ids_.size()),
                               {arrow::MakeArray(Flat(arrow::int64(), row_ids_)),
                                ListOver(schema->field(1)->type(), offsets_, Flat(arrow::int32(), ids_)),
                                ListOver(schema->field(2)->type(), offsets_, Flat(arrow::uint8(), mask_))});
  std::string bytes;
  RETURN_IF_ERROR(Write(*batch, &bytes));
  return bytes;
}

struct TokenShard::Batch {
  std::shared_ptr<const MappedFile> file;
  std::shared_ptr<arrow::RecordBatch> record_batch;
};

TokenShard::~TokenShard() = default;

absl::StatusOr<std::unique_ptr<TokenShard>> TokenShard::Open(std::shared_ptr<const MappedFile> file) {
  const auto bytes = file->bytes();
  auto buffer = std::make_shared<arrow::Buffer>(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int64_t>(bytes.size()));
  auto reader = arrow::ipc::RecordBatchFileReader::Open(std::make_shared<arrow::io::BufferReader>(buffer));
  if (!reader.ok()) return absl::DataLossError(reader.status().message());
  if ((*reader)->num_record_batches() != 1 || !(*reader)->schema()->Equals(*ShardSchema(), /*check_metadata=*/false)) {
    return absl::DataLossError("not a shard of the tokenised cache");
  }
  auto batch = (*reader)->ReadRecordBatch(0);
  if (!batch.ok()) return absl::DataLossError(batch.status().message());

  std::unique_ptr<TokenShard> shard(new TokenShard());
  shard->batch_ = std::make_unique<Batch>(Batch{std::move(file), *batch});
  for (const StatField& field : kStatFields) {
    auto text = (*reader)->schema()->metadata()->Get(field.name);
    if (!text.ok() || !absl::SimpleAtoi(*text, &(shard.get()->stats_.*field.value))) {
      return absl::DataLossError(absl::StrCat("no count ", field.name));
    }
  }
  const auto& ids = static_cast<const arrow::LargeListArray&>(*(*batch)->column(1));
  const auto& mask = static_cast<const arrow::LargeListArray&>(*(*batch)->column(2));
  shard->rows_ = (*batch)->num_rows();
  shard->row_ids_ = static_cast<const arrow::Int64Array&>(*(*batch)->column(0)).raw_values();
  shard->offsets_ = ids.raw_value_offsets();
  shard->ids_ = static_cast<const arrow::Int32Array&>(*ids.values()).raw_values();
  shard->mask_ = static_cast<const arrow::UInt8Array&>(*mask.values()).raw_values();
  return shard;
}

}  // namespace sluice::engine
