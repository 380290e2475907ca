#include "engine/checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaximumHeaderBytes = 100'000'000;  // the limit of the format
constexpr char kMetadataName[] = "__metadata__";

// Takes the events of the JSON reader one by one: no tree is built, and a wrong value stops the reading at once, so
// that nesting never gets deep. Levels: 1 header, 2 tensor or metadata, 3 list of a tensor.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& problem() const { return problem_; }
  SafetensorsHeader& header() { return header_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a truth value"); }
  bool number_float(double, const std::string& text) override {
    return Unexpected(absl::StrCat("the number ", text.substr(0, 40)));
  }
  bool binary(binary_t&) override { return Unexpected("binary"); }
  bool number_integer(int64_t value) override {
    return value < 0 ? Unexpected(absl::StrCat("the negative number ", value))
                     : number_unsigned(static_cast<uint64_t>(value));
  }

  bool number_unsigned(uint64_t value) override {
    if (level_ != 3) return Unexpected(absl::StrCat("the number ", value));
    if (value > static_cast<uint64_t>(INT64_MAX))
      return Fail(absl::StrCat(field_, " holds ", value, ", which is too large"));
    (field_ == "shape" ? shape_ : offsets_)->push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (level_ == 2 && in_metadata_) {
      header_.metadata[field_] = value;
      return true;
    }
    if (level_ != 2 || field_ != "dtype") return Unexpected(absl::StrCat("the text \"", value.substr(0, 40), "\""));
    dtype_ = DataTypeFromName(value);
    return dtype_.has_value() || Fail(absl::StrCat("unknown or unsupported dtype \"", value.substr(0, 40), "\""));
  }

  bool start_object(size_t) override {
    if (level_ >= 2) return Unexpected("an object");
    ++level_;
    fields_.clear();
    dtype_.reset();
    shape_.reset();
    offsets_.reset();
    return true;
  }

  bool key(std::string& value) override {
    if (level_ == 1) {
      field_.clear();
      name_ = value;
      in_metadata_ = value == kMetadataName;
      return names_.insert(value).second || Fail("the name is given twice");
    }
    field_ = value;
    if (!fields_.insert(value).second)
      return Fail(absl::StrCat("the key \"", value.substr(0, 40), "\" is given twice"));
    if (in_metadata_ || value == "dtype" || value == "shape" || value == "data_offsets") return true;
    return Fail(absl::StrCat("unknown key \"", value.substr(0, 40), "\" (expected dtype, shape, data_offsets)"));
  }

  bool end_object() override {
    --level_;
    return level_ == 0 || in_metadata_ || AddTensor();
  }

  bool start_array(size_t) override {
    if (level_ == 0) return Fail("is a list, expected an object");
    if (level_ != 2 || in_metadata_ || (field_ != "shape" && field_ != "data_offsets")) return Unexpected("a list");
    ++level_;
    (field_ == "shape" ? shape_ : offsets_).emplace();
    return true;
  }

  bool end_array() override {
    --level_;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    name_.clear();
    return Fail(absl::StrCat("not JSON at byte ", position, ": ", JsonErrorText(error)));
  }

 private:
  bool Fail(const std::string& what) {
    problem_ =
        name_.empty() ? absl::StrCat("header: ", what) : absl::StrCat("header: \"", name_.substr(0, 200), "\": ", what);
    return false;
  }

  bool Unexpected(const std::string& what) {
    if (level_ == 0) return Fail(absl::StrCat("is ", what, ", expected an object"));
    if (level_ == 1) return Fail(absl::StrCat("is ", what, ", expected an object"));
    if (in_metadata_) return Fail(absl::StrCat("\"", field_.substr(0, 40), "\" is ", what, ", expected a text"));
    const std::string wanted = field_ == "dtype" ? "expected a text" : "expected a list of whole numbers of 0 or more";
    return Fail(absl::StrCat(field_, level_ == 3 ? " holds " : " is ", what, ", ", wanted));
  }

  bool AddTensor() {
    for (const auto& [present, field] : {std::pair(dtype_.has_value(), "dtype"), std::pair(shape_.has_value(), "shape"),
                                         std::pair(offsets_.has_value(), "data_offsets")}) {
      if (!present) return Fail(absl::StrCat("has no ", field));
    }
    if (offsets_->size() != 2)
      return Fail(absl::StrCat("data_offsets holds ", offsets_->size(), " numbers, expected 2"));
    TensorEntry entry{TensorSpec{name_, *dtype_, *std::move(shape_)}, static_cast<uint64_t>((*offsets_)[0]),
                      static_cast<uint64_t>((*offsets_)[1])};
    if (entry.end < entry.begin) {
      return Fail(absl::StrCat("data_offsets end at ", entry.end, " before they begin at ", entry.begin));
    }
    const std::optional<int64_t> bytes = ByteCount(entry.spec);
    if (!bytes.has_value()) return Fail(absl::StrCat("shape ", ShapeText(entry.spec.shape), " overflows 64 bits"));
    if (static_cast<uint64_t>(*bytes) != entry.end - entry.begin) {
      return Fail(absl::StrCat(DataTypeName(entry.spec.dtype), " ", ShapeText(entry.spec.shape), " takes ", *bytes,
                               " bytes, data_offsets give ", entry.end - entry.begin));
    }
    header_.tensors.push_back(std::move(entry));
    return true;
  }

  SafetensorsHeader header_;
  std::string problem_;
  int level_ = 0;
  std::set<std::string> names_;
  std::set<std::string> fields_;
  std::string name_;   // of the tensor being read
  std::string field_;  // of the tensor or metadata being read
  bool in_metadata_ = false;
  std::optional<DataType> dtype_;
  std::optional<std::vector<int64_t>> shape_, offsets_;
};

// The ranges must tile the data exactly: what no tensor covers could hide anything, what two share would alias.
absl::Status CheckCoverage(const std::vector<TensorEntry>& sorted, uint64_t data_bytes) {
  uint64_t covered = 0;
  for (const TensorEntry& tensor : sorted) {
    if (tensor.begin > covered) {
      return absl::InvalidArgumentError(absl::StrCat("data bytes ", covered, "..", tensor.begin, " before \"",
                                                     tensor.spec.name, "\" belong to no tensor"));
    }
    if (tensor.begin < covered) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", tensor.spec.name, "\" overlaps another tensor in data bytes ", tensor.begin, "..", covered));
    }
    covered = tensor.end;
    if (covered > data_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("truncated: \"", tensor.spec.name, "\" ends at data byte ",
                                                     covered, ", the file has ", data_bytes, " data bytes"));
    }
  }
  if (covered < data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("data bytes ", covered, "..", data_bytes, " at the end belong to no tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("truncated: ", file.size(), " bytes, too few for the header's length"));
  }
  uint64_t length;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length == 0) return absl::InvalidArgumentError("the header's length is 0");
  if (length > kMaximumHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header's length ", length, " is above the limit of ", kMaximumHeaderBytes, " bytes"));
  }
  if (length > file.size() - kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("truncated: the header shall have ", length, " bytes, the file has ", file.size() - kLengthBytes));
  }
  const char* const text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  // The JSON reader takes NUL for the end of its input, and skips a byte-order mark.
  if (std::memchr(text, '\0', length) != nullptr)
    return absl::InvalidArgumentError("header: not JSON: holds a NUL byte");
  if (static_cast<unsigned char>(text[0]) == 0xEF)
    return absl::InvalidArgumentError("header: not JSON: begins with a byte-order mark");

  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(text, text + length, &handler)) return absl::InvalidArgumentError(handler.problem());
  SafetensorsHeader header = std::move(handler.header());
  header.data_offset = kLengthBytes + length;
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.spec.name) < std::tie(b.begin, b.end, b.spec.name);
  });
  RETURN_IF_ERROR(CheckCoverage(header.tensors, file.size() - header.data_offset));
  return header;
}

absl::StatusOr<std::vector<TensorEntry>> PlaceTensors(std::vector<TensorSpec> specs) {
  // Larger elements first; among equal sizes in the order that the Python library writes.
  constexpr DataType kOrder[] = {DataType::kU64,    DataType::kI64, DataType::kF64,    DataType::kF32,
                                 DataType::kU32,    DataType::kI32, DataType::kBF16,   DataType::kF16,
                                 DataType::kU16,    DataType::kI16, DataType::kF8E8M0, DataType::kF8E4M3,
                                 DataType::kF8E5M2, DataType::kI8,  DataType::kU8,     DataType::kBool};
  const auto rank = [&](DataType dtype) { return std::find(std::begin(kOrder), std::end(kOrder), dtype) - kOrder; };
  std::sort(specs.begin(), specs.end(), [&](const TensorSpec& a, const TensorSpec& b) {
    const ptrdiff_t rank_a = rank(a.dtype), rank_b = rank(b.dtype);
    return std::tie(rank_a, a.name) < std::tie(rank_b, b.name);
  });
  std::set<std::string> names;
  std::vector<TensorEntry> placed;
  uint64_t position = 0;
  for (TensorSpec& spec : specs) {
    const std::optional<int64_t> bytes = ByteCount(spec);
    if (spec.name.empty() || spec.name == kMetadataName) {
      return absl::InvalidArgumentError(absl::StrCat("\"", spec.name, "\" cannot be the name of a tensor"));
    }
    if (!names.insert(spec.name).second)
      return absl::InvalidArgumentError(absl::StrCat("\"", spec.name, "\" is given twice"));
    if (!bytes.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", spec.name, "\": shape ", ShapeText(spec.shape), " is not a shape"));
    }
    const uint64_t begin = position;
    position += static_cast<uint64_t>(*bytes);
    placed.push_back(TensorEntry{std::move(spec), begin, position});
  }
  return placed;
}

absl::StatusOr<std::string> SerializeSafetensorsHeader(const std::vector<TensorEntry>& placed,
                                                       const std::map<std::string, std::string>& metadata) {
  // Written by hand to keep the order of the data; only the strings need a JSON library.
  std::string text = "{";
  try {
    const auto quoted = [](const std::string& value) { return nlohmann::json(value).dump(); };
    if (!metadata.empty()) absl::StrAppend(&text, quoted(kMetadataName), ":", nlohmann::json(metadata).dump());
    for (const TensorEntry& tensor : placed) {
      absl::StrAppend(&text, text.size() > 1 ? "," : "", quoted(tensor.spec.name), ":{\"dtype\":\"",
                      DataTypeName(tensor.spec.dtype), "\",\"shape\":[", absl::StrJoin(tensor.spec.shape, ","));
      absl::StrAppend(&text, "],\"data_offsets\":[", tensor.begin, ",", tensor.end, "]}");
    }
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a name or metadata text is not UTF-8");
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaximumHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header would have ", text.size(), " bytes, above the format's limit"));
  }
  const uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text;
}

}  // namespace sluice::engine
