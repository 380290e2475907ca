#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/content_hash.h"
#include "engine/data/row_file.h"
#include "engine/tokenizer/utf8.h"

namespace sluice::engine {
namespace {

using jinja::Value;

absl::Status FromArrow(const arrow::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const absl::StatusCode code = status.IsOutOfMemory() ? absl::StatusCode::kResourceExhausted
                                : status.IsIOError()   ? absl::StatusCode::kDataLoss
                                                       : absl::StatusCode::kInvalidArgument;
  return absl::Status(code, status.message());
}

absl::StatusOr<Value> ToValue(const arrow::Array& array, int64_t index);

absl::StatusOr<Value> Text(std::string_view bytes) {
  if (ValidUtf8Prefix(bytes) < bytes.size()) return absl::InvalidArgumentError("not valid UTF-8");
  return Value::String(std::string(bytes));
}

template <typename ListArray>
absl::StatusOr<Value> ListOf(const arrow::Array& array, int64_t index) {
  const auto& list = static_cast<const ListArray&>(array);
  std::vector<Value> items;
  items.reserve(list.value_length(index));
  for (int64_t i = list.value_offset(index), end = i + list.value_length(index); i < end; ++i) {
    ASSIGN_OR_RETURN(Value item, ToValue(*list.values(), i));
    items.push_back(std::move(item));
  }
  return Value::List(std::move(items));
}

absl::StatusOr<Value> StructOf(const arrow::StructArray& array, int64_t index) {
  jinja::Dict dict;
  for (int i = 0; i < array.num_fields(); ++i) {
    const std::shared_ptr<arrow::Array> field = array.field(i);
    const std::string& name = array.struct_type()->field(i)->name();
    // One struct type serves all rows, so a null only says that this row does not have the key.
    if (field->IsNull(index) || field->type_id() == arrow::Type::NA) continue;
    absl::StatusOr<Value> value = ToValue(*field, index);
    if (!value.ok()) return Annotate(value.status(), name);
    dict.Set(name, std::move(value).value());
  }
  return Value::FromDict(std::move(dict));
}

absl::StatusOr<Value> MapOf(const arrow::MapArray& array, int64_t index) {
  jinja::Dict dict;
  for (int64_t i = array.value_offset(index), end = i + array.value_length(index); i < end; ++i) {
    ASSIGN_OR_RETURN(Value key, ToValue(*array.keys(), i));
    if (!key.is_string()) return absl::InvalidArgumentError("a map's keys must be text");
    ASSIGN_OR_RETURN(Value value, ToValue(*array.items(), i));
    dict.Set(std::move(key), std::move(value));
  }
  return Value::FromDict(std::move(dict));
}

absl::StatusOr<Value> ToValue(const arrow::Array& array, int64_t index) {
  if (array.IsNull(index)) return Value::None();
  switch (array.type_id()) {
    case arrow::Type::NA:
      return Value::None();
    case arrow::Type::BOOL:
      return Value::Bool(static_cast<const arrow::BooleanArray&>(array).Value(index));
    case arrow::Type::INT8:
      return Value::Int(static_cast<const arrow::Int8Array&>(array).Value(index));
    case arrow::Type::INT16:
      return Value::Int(static_cast<const arrow::Int16Array&>(array).Value(index));
    case arrow::Type::INT32:
      return Value::Int(static_cast<const arrow::Int32Array&>(array).Value(index));
    case arrow::Type::INT64:
      return Value::Int(static_cast<const arrow::Int64Array&>(array).Value(index));
    case arrow::Type::UINT8:
      return Value::Int(static_cast<const arrow::UInt8Array&>(array).Value(index));
    case arrow::Type::UINT16:
      return Value::Int(static_cast<const arrow::UInt16Array&>(array).Value(index));
    case arrow::Type::UINT32:
      return Value::Int(static_cast<const arrow::UInt32Array&>(array).Value(index));
    case arrow::Type::UINT64:
      return Value::Integer(std::to_string(static_cast<const arrow::UInt64Array&>(array).Value(index)));
    case arrow::Type::FLOAT:
      return Value::Float(static_cast<const arrow::FloatArray&>(array).Value(index));
    case arrow::Type::DOUBLE:
      return Value::Float(static_cast<const arrow::DoubleArray&>(array).Value(index));
    case arrow::Type::STRING:
      return Text(static_cast<const arrow::StringArray&>(array).GetView(index));
    case arrow::Type::LARGE_STRING:
      return Text(static_cast<const arrow::LargeStringArray&>(array).GetView(index));
    case arrow::Type::STRING_VIEW:
      return Text(static_cast<const arrow::StringViewArray&>(array).GetView(index));
    case arrow::Type::LIST:
      return ListOf<arrow::ListArray>(array, index);
    case arrow::Type::LARGE_LIST:
      return ListOf<arrow::LargeListArray>(array, index);
    case arrow::Type::FIXED_SIZE_LIST:
      return ListOf<arrow::FixedSizeListArray>(array, index);
    case arrow::Type::LIST_VIEW:
      return ListOf<arrow::ListViewArray>(array, index);
    case arrow::Type::LARGE_LIST_VIEW:
      return ListOf<arrow::LargeListViewArray>(array, index);
    case arrow::Type::STRUCT:
      return StructOf(static_cast<const arrow::StructArray&>(array), index);
    case arrow::Type::MAP:
      return MapOf(static_cast<const arrow::MapArray&>(array), index);
    case arrow::Type::DICTIONARY: {
      const auto& encoded = static_cast<const arrow::DictionaryArray&>(array);
      return ToValue(*encoded.dictionary(), encoded.GetValueIndex(index));
    }
    case arrow::Type::EXTENSION:
      return ToValue(*static_cast<const arrow::ExtensionArray&>(array).storage(), index);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("has type ", array.type()->ToString(), ", which has no form as text or JSON"));
  }
}

void CollectLeaves(const parquet::arrow::SchemaField& field, std::vector<int>* leaves) {
  if (field.is_leaf()) leaves->push_back(field.column_index);
  for (const parquet::arrow::SchemaField& child : field.children) CollectLeaves(child, leaves);
}

class ParquetFile : public RowFile {
 public:
  explicit ParquetFile(std::string path) : path_(std::move(path)) {}

  absl::Status Open() {
    try {
      return Annotate(OpenOrThrow(), path_);
    } catch (const std::exception& error) {  // parquet reports damaged metadata by throwing
      return absl::InvalidArgumentError(absl::StrCat(path_, ": not a readable Parquet file: ", error.what()));
    }
  }

  int64_t rows() const override { return group_starts_.back(); }
  const std::string& content_hash() const override { return content_hash_; }
  std::string Where(int64_t row) const override { return absl::StrCat(path_, ": row ", row); }

  absl::StatusOr<std::vector<std::string>> Columns() const override {
    std::vector<std::string> names;
    for (const auto& field : reader_->manifest().schema_fields) names.push_back(field.field->name());
    return names;
  }

  absl::Status Read(int64_t begin, int64_t end, const std::vector<std::string>& columns,
                    std::vector<Row>* out) const override {
    size_t group = std::upper_bound(group_starts_.begin(), group_starts_.end(), begin) - group_starts_.begin() - 1;
    for (; begin < end; ++group) {
      const int64_t part_end = std::min(end, group_starts_[group + 1]);
      if (begin == part_end) continue;  // a row group without rows
      absl::StatusOr<std::shared_ptr<arrow::Table>> table = ReadGroup(static_cast<int>(group), columns);
      if (!table.ok()) return Annotate(table.status(), absl::StrCat(path_, ": row group ", group));
      RETURN_IF_ERROR(AppendRows(**table, group_starts_[group], begin, part_end, out));
      begin = part_end;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status OpenOrThrow() {
    arrow::Result<std::shared_ptr<arrow::io::ReadableFile>> file = arrow::io::ReadableFile::Open(path_);
    if (!file.ok()) {
      return absl::NotFoundError(absl::StrCat("cannot open: ", file.status().message()));
    }
    RETURN_IF_ERROR(HashContents(**file));
    auto reader = parquet::arrow::OpenFile(*file, arrow::default_memory_pool());
    if (!reader.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("not a readable Parquet file: ", reader.status().message()));
    }
    reader_ = std::move(reader).ValueUnsafe();
    reader_->set_use_threads(false);  // rows are read from several threads already
    group_starts_ = {0};
    const auto metadata = reader_->parquet_reader()->metadata();
    for (int group = 0; group < reader_->num_row_groups(); ++group) {
      group_starts_.push_back(group_starts_.back() + metadata->RowGroup(group)->num_rows());
    }
    return absl::OkStatus();
  }

  absl::Status HashContents(arrow::io::ReadableFile& file) {
    ContentHasher hasher;
    for (int64_t offset = 0;;) {
      auto block = file.ReadAt(offset, int64_t{1} << 20);
      if (!block.ok()) return FromArrow(block.status());
      if ((*block)->size() == 0) break;
      hasher.Add(std::string_view(**block));
      offset += (*block)->size();
    }
    content_hash_ = hasher.Hex();
    return absl::OkStatus();
  }

  // Neighbouring calls mostly want the same row group, and a group is read whole; so the last one is kept.
  absl::StatusOr<std::shared_ptr<arrow::Table>> ReadGroup(int group, const std::vector<std::string>& columns) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_table_ != nullptr && kept_group_ == group && kept_columns_ == columns) return kept_table_;
    std::vector<int> leaves;
    for (const parquet::arrow::SchemaField& field : reader_->manifest().schema_fields) {
      if (columns.empty() || std::find(columns.begin(), columns.end(), field.field->name()) != columns.end()) {
        CollectLeaves(field, &leaves);
      }
    }
    try {
      auto table = reader_->ReadRowGroup(group, leaves);
      if (!table.ok()) return FromArrow(table.status());
      RETURN_IF_ERROR(FromArrow((*table)->Validate()));
      kept_table_ = std::move(table).ValueUnsafe();
    } catch (const std::exception& error) {
      return absl::DataLossError(error.what());
    }
    kept_group_ = group;
    kept_columns_ = columns;
    return kept_table_;
  }

  absl::Status AppendRows(const arrow::Table& table, int64_t table_start, int64_t begin, int64_t end,
                          std::vector<Row>* out) const {
    std::vector<jinja::Dict> rows(end - begin);
    const std::shared_ptr<arrow::Table> part = table.Slice(begin - table_start, end - begin);
    for (int column = 0; column < part->num_columns(); ++column) {
      const std::string& name = part->field(column)->name();
      int64_t at = 0;
      for (const std::shared_ptr<arrow::Array>& chunk : part->column(column)->chunks()) {
        for (int64_t i = 0; i < chunk->length(); ++i, ++at) {
          absl::StatusOr<Value> value = ToValue(*chunk, i);
          if (!value.ok()) {
            return Annotate(value.status(), absl::StrCat(Where(begin + at), ": column \"", name, "\""));
          }
          rows[at].Set(name, std::move(value).value());
        }
      }
    }
    for (jinja::Dict& row : rows) out->push_back(Value::FromDict(std::move(row)));
    return absl::OkStatus();
  }

  std::string path_;
  std::string content_hash_;
  std::vector<int64_t> group_starts_;  // [row groups + 1] first row of each, and the number of rows
  mutable std::mutex mutex_;           // guards what follows
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  mutable std::shared_ptr<arrow::Table> kept_table_;
  mutable int kept_group_ = -1;
  mutable std::vector<std::string> kept_columns_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowFile>> OpenParquetFile(const std::string& path) {
  auto file = std::make_unique<ParquetFile>(path);
  RETURN_IF_ERROR(file->Open());
  return file;
}

}  // namespace sluice::engine
