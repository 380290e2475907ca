// Reader and writer of safetensors files: the trouble cases of tests/golden/checkpoint/k01, files of the Python
// library, and broken streams.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "common/crc32c.h"
#include "common/testing/fault_injection_file_system.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/checkpoint/float_conversion.h"
#include "engine/checkpoint/safetensors_file.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

using ::nlohmann::json;
using ::sluice::testing::FaultInjectionFileSystem;
using ::sluice::testing::StatusIs;
using ::sluice::testing::Surviving;
using ::testing::HasSubstr;

constexpr char kGolden[] = "tests/golden/checkpoint/";

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string FileContents(const std::string& path) {
  absl::StatusOr<std::string> contents = PosixFileSystem().ReadFile(path);
  EXPECT_OK(contents);
  return contents.value_or("");
}

// What the message of each malformed file must say. A file that is not in this table fails the test.
const std::map<std::string, std::string>& Causes() {
  static const auto& causes = *new std::map<std::string, std::string>{
      {"bad_empty_file", "truncated: 0 bytes"},
      {"bad_seven_bytes", "truncated: 7 bytes"},
      {"bad_length_beyond_file", "truncated: the header shall have 10000 bytes"},
      {"bad_length_huge", "18446744073709551615 is above the limit of 100000000"},
      {"bad_length_over_limit", "200000000 is above the limit of 100000000"},
      {"bad_length_zero", "length is 0"},
      {"bad_length_short", "not JSON at byte"},
      {"bad_not_json", "not JSON at byte"},
      {"bad_not_utf8", "ill-formed UTF-8"},
      {"bad_array_header", "is a list, expected an object"},
      {"bad_truncated_data", "truncated: \"a\" ends at data byte 16, the file has 12"},
      {"bad_trailing_data", "data bytes 16..22 at the end belong to no tensor"},
      {"bad_hole", "data bytes 8..12 before \"b\" belong to no tensor"},
      {"bad_overlap", "\"b\" overlaps another tensor in data bytes 8..12"},
      {"bad_same_range_twice", "\"b\" overlaps another tensor in data bytes 0..16"},
      {"bad_end_before_begin", "\"a\": data_offsets end at 0 before they begin at 16"},
      {"bad_negative_offset", "\"a\": data_offsets holds the negative number -16"},
      {"bad_size_disagrees_with_shape", "\"a\": F32 [3, 2] takes 24 bytes, data_offsets give 16"},
      {"bad_shape_product_overflows", "overflows 64 bits"},
      {"bad_negative_dimension", "\"a\": shape holds the negative number -2"},
      {"bad_unknown_dtype", "\"a\": unknown or unsupported dtype \"F31\""},
      {"bad_three_offsets", "\"a\": data_offsets holds 3 numbers, expected 2"},
      {"bad_missing_shape", "\"a\": has no shape"},
      {"bad_duplicate_name", "\"a\": the name is given twice"},
      {"bad_float_offset", "\"a\": data_offsets holds the number 0.0"},
      {"bad_metadata_number", "\"n\" is the number 1, expected a text"},
      {"bad_deep_nesting", "\"a\": is a list, expected an object"},
      {"bad_second_object", "not JSON at byte"},
      // The format allows a reader either; a name given twice is refused whatever its ranges are.
      {"either_duplicate_name_same_range", "\"a\": the name is given twice"},
  };
  return causes;
}

// Values of any dtype as doubles, for comparison with the golden lists.
std::vector<double> Values(const TensorData& tensor) {
  const size_t count = static_cast<size_t>(*ElementCount(tensor.spec.shape));
  std::vector<double> values(count);
  std::vector<float> floats(count);
  if (ConvertToFloat32(tensor.spec.dtype, tensor.bytes, floats).ok()) return {floats.begin(), floats.end()};
  for (size_t i = 0; i < count; ++i) {
    const size_t size = static_cast<size_t>(ElementSize(tensor.spec.dtype));
    int64_t value = 0;  // the integers there are small or 64 bits wide
    std::memcpy(&value, tensor.bytes.data() + i * size, size);
    values[i] = static_cast<double>(value);
  }
  return values;
}

std::string TorchName(DataType dtype) {
  static const auto& names = *new std::map<DataType, std::string>{
      {DataType::kF32, "float32"},         {DataType::kF16, "float16"}, {DataType::kBF16, "bfloat16"},
      {DataType::kI64, "int64"},           {DataType::kU8, "uint8"},    {DataType::kBool, "bool"},
      {DataType::kF8E4M3, "float8_e4m3fn"}};
  const auto found = names.find(dtype);
  return found == names.end() ? DataTypeName(dtype) : found->second;
}

TEST(SafetensorsCasesTest, AcceptsAndRejectsEachFileForItsReason) {
  const json cases = json::parse(FileContents(std::string(kGolden) + "k01/expected.json"));
  ASSERT_EQ(cases.size(), 39u);
  for (const json& item : cases) {
    const std::string name = item["file"];
    SCOPED_TRACE(name);
    const absl::StatusOr<SafetensorsFile> file =
        SafetensorsFile::Open(PosixFileSystem(), kGolden + ("k01/" + name) + ".safetensors");
    const auto cause = Causes().find(name);
    if (item["outcome"] == "reject" || cause != Causes().end()) {
      ASSERT_NE(cause, Causes().end());
      EXPECT_NE(item["outcome"], "accept");
      EXPECT_THAT(file, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(cause->second)));
      EXPECT_THAT(std::string(file.status().message()), HasSubstr(name + ".safetensors: "));
      continue;
    }
    ASSERT_OK(file);
    const json& tensors = item.contains("tensors") ? item["tensors"] : item["tensors_if_accepted"];
    EXPECT_EQ(file->Tensors().size(), tensors.size());
    for (const auto& [tensor_name, want] : tensors.items()) {
      ASSERT_OK_AND_ASSIGN(const TensorData tensor, file->Tensor(tensor_name));
      EXPECT_EQ(TorchName(tensor.spec.dtype), want[0].get<std::string>());
      EXPECT_EQ(tensor.spec.shape, want[1].get<std::vector<int64_t>>());
      EXPECT_EQ(Values(tensor), want[2].get<std::vector<double>>());
    }
  }
}

std::string WithHeader(const std::string& header, const std::string& data = "") {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

// More of the same kinds.
TEST(SafetensorsHeaderTest, RejectsForItsReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {WithHeader(std::string("{}\0x", 4)), "NUL"},
      {WithHeader("\xEF\xBB\xBF{}"), "byte-order mark"},
      {WithHeader("null"), "is null, expected an object"},
      {WithHeader("7"), "is the number 7, expected an object"},
      {WithHeader("   "), "not JSON"},
      {WithHeader("{\"a\":{}}"), "has no dtype"},
      {WithHeader("{\"a\":7}"), "\"a\": is the number 7, expected an object"},
      {WithHeader("{\"a\":{\"dtype\":[],\"shape\":[],\"data_offsets\":[0,4]}}", "1234"),
       "dtype is a list, expected a text"},
      {WithHeader("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", "1"),
       "\"dtype\" is given twice"},
      {WithHeader("{\"a\":{\"dtype\":\"U8\",\"strides\":[1],\"shape\":[],\"data_offsets\":[0,1]}}", "1"),
       "unknown key \"strides\""},
      {WithHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]}}", "1"), "shape holds a list"},
      {WithHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[true],\"data_offsets\":[0,1]}}", "1"),
       "shape holds a truth value"},
      {WithHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":[0,1]}}", "1"),
       "too large"},
      {WithHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,1]}}", "1"),
       "holds the number"},
      {WithHeader("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,1]}}", "1"),
       "overflows"},
      {WithHeader("{\"__metadata__\":{\"a\":{}}}"), "\"a\" is an object, expected a text"},
      {WithHeader("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}"), "given twice"},
      {WithHeader("{\"__metadata__\":{},\"__metadata__\":{}}"), "given twice"},
      {WithHeader("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", "123"),
       "data bytes 0..1 before \"a\""},
  };
  for (const auto& [file, cause] : cases) {
    EXPECT_THAT(ParseSafetensorsHeader(Bytes(file)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(cause)))
        << file.substr(8);
  }
}

// A large dimension beside 0 is an empty tensor, not an overflow.
TEST(SafetensorsHeaderTest, AcceptsHugeDimensionsOfNothing) {
  const std::string file =
      WithHeader("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,0],\"data_offsets\":[0,0]}}");
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ParseSafetensorsHeader(Bytes(file)));
  EXPECT_EQ(header.tensors.size(), 1u);
}

// Whatever the bytes are, the parser returns; sanitizers watch. And every cut of a good file is refused.
TEST(SafetensorsHeaderTest, DamageIsAnErrorOrHarmless) {
  const std::string good = FileContents(std::string(kGolden) + "mixed.safetensors");
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseSafetensorsHeader(Bytes(good).first(length)).ok()) << length;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = good;
    for (int flips = 0; flips < 3; ++flips) damaged[random() % damaged.size()] = static_cast<char>(random());
    const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(Bytes(damaged));
    if (header.ok() && !header->tensors.empty()) {
      EXPECT_EQ(header->data_offset + header->tensors.back().end, damaged.size());
    }
  }
}

// Tensor number k of n bytes holds k, k+1, ... as the script that made mixed.safetensors says.
struct MixedTensors {
  MixedTensors() {
    const std::vector<TensorSpec> specs = {
        {"bf16", DataType::kBF16, {3}},    {"bool", DataType::kBool, {5}}, {"f16", DataType::kF16, {2, 2}},
        {"f32", DataType::kF32, {3, 1}},   {"f64", DataType::kF64, {2}},   {"e4m3", DataType::kF8E4M3, {3}},
        {"e5m2", DataType::kF8E5M2, {1}},  {"i16", DataType::kI16, {3}},   {"i32", DataType::kI32, {1}},
        {"i64", DataType::kI64, {2}},      {"i8", DataType::kI8, {7}},     {"u8", DataType::kU8, {1, 1, 3}},
        {"empty", DataType::kF32, {0, 4}}, {"scalar", DataType::kF32, {}}, {"z.\xC3\xBC\"\\", DataType::kU8, {1}}};
    for (size_t k = 0; k < specs.size(); ++k) {
      std::vector<std::byte>& values = storage.emplace_back(static_cast<size_t>(*ByteCount(specs[k])));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<std::byte>((k + i) % (specs[k].dtype == DataType::kBool ? 2 : 251));
      }
      tensors.push_back({specs[k], values});
    }
  }
  std::vector<std::vector<std::byte>> storage;
  std::vector<TensorData> tensors;
};

TEST(SafetensorsInteropTest, ReadsWhatThePythonLibraryWrote) {
  const MixedTensors want;
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(PosixFileSystem(), std::string(kGolden) + "mixed.safetensors"));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(file.Tensors().size(), want.tensors.size());
  for (const TensorData& tensor : want.tensors) {
    ASSERT_OK_AND_ASSIGN(const TensorData got, file.Tensor(tensor.spec.name));
    EXPECT_EQ(got.spec, tensor.spec);
    EXPECT_TRUE(std::ranges::equal(got.bytes, tensor.bytes)) << tensor.spec.name;
  }
  EXPECT_THAT(file.Tensor("none"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("mixed.safetensors: holds no tensor none")));
}

// Equal bytes: so the Python library reads our files.
TEST(SafetensorsInteropTest, WritesTheBytesThePythonLibraryWrites) {
  const testing::TempDir folder;
  const MixedTensors mixed;
  ASSERT_OK_AND_ASSIGN(const FileEntry entry, WriteSafetensors(PosixFileSystem(), folder.Join("mixed.safetensors"),
                                                               mixed.tensors, {{"format", "pt"}}));
  const std::string got = FileContents(folder.Join("mixed.safetensors"));
  EXPECT_EQ(got, FileContents(std::string(kGolden) + "mixed.safetensors"));
  EXPECT_EQ(entry, (FileEntry{"mixed.safetensors", got.size(), Crc32c(Bytes(got))}));
  EXPECT_EQ(PosixFileSystem().ListFolder(folder.path().string())->size(), 1u);
}

TEST(SafetensorsWriterTest, AlignsEveryTensor) {
  ASSERT_OK_AND_ASSIGN(const std::vector<TensorEntry> placed, PlaceTensors({{"a", DataType::kU8, {3}},
                                                                            {"b", DataType::kF64, {1}},
                                                                            {"c", DataType::kBF16, {1}},
                                                                            {"d", DataType::kF32, {1}}}));
  for (const TensorEntry& tensor : placed)
    EXPECT_EQ(tensor.begin % static_cast<uint64_t>(ElementSize(tensor.spec.dtype)), 0u);
  ASSERT_OK_AND_ASSIGN(const std::string header, SerializeSafetensorsHeader(placed, {}));
  EXPECT_EQ(header.size() % 8, 0u);
}

TEST(SafetensorsWriterTest, StreamsInPiecesAndChecksTheirOrder) {
  FaultInjectionFileSystem files;
  const std::vector<TensorSpec> specs = {
      {"b", DataType::kU8, {4}}, {"a", DataType::kU8, {2}}, {"none", DataType::kU8, {0}}};
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<SafetensorsWriter> writer,
                       SafetensorsWriter::Create(files, "/f", specs, {}));
  EXPECT_THAT(writer->Append("b", Bytes("1234")), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("turn of a")));
  EXPECT_THAT(writer->Append("a", Bytes("123")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("only 2 are missing")));
  ASSERT_OK(writer->Append("a", Bytes("12")));
  ASSERT_OK(writer->Append("b", Bytes("3")));
  EXPECT_THAT(writer->Finish(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("b lacks 3")));
  ASSERT_OK(writer->Append("b", Bytes("456")));
  EXPECT_THAT(writer->Append("b", Bytes("7")), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("complete")));
  EXPECT_FALSE(files.Stat("/f").ok());
  ASSERT_OK(writer->Finish());
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(files, "/f"));
  EXPECT_TRUE(std::ranges::equal(file.Tensor("b")->bytes, Bytes("3456")));
}

TEST(SafetensorsWriterTest, RefusesBadNamesAndShapes) {
  FaultInjectionFileSystem files;
  const std::vector<std::vector<TensorSpec>> cases = {{{"", DataType::kU8, {}}},
                                                      {{"__metadata__", DataType::kU8, {}}},
                                                      {{"a", DataType::kU8, {}}, {"a", DataType::kU8, {}}},
                                                      {{"a", DataType::kU8, {-1}}},
                                                      {{"\xFF", DataType::kU8, {}}},
                                                      {{"a", DataType::kF32, {int64_t{1} << 62}}}};
  for (const std::vector<TensorSpec>& specs : cases) {
    EXPECT_THAT(SafetensorsWriter::Create(files, "/f", specs, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/f: ")));
  }
  EXPECT_TRUE(files.ListFolder("/")->empty());
}

// At each operation a crash and an error: the file is whole or not there, and nothing else is left after an error.
TEST(SafetensorsWriterTest, FileIsWholeOrAbsent) {
  const MixedTensors mixed;
  for (const bool crash : {false, true}) {
    for (int64_t n = 0;; ++n) {
      FaultInjectionFileSystem files;
      crash ? files.CrashAtOperation(n) : files.FailAtOperation(n, absl::ResourceExhaustedError("disk full"));
      const absl::StatusOr<FileEntry> written = WriteSafetensors(files, "/f", mixed.tensors, {});
      if (!files.fault_happened()) {
        EXPECT_GT(n, 15);
        break;
      }
      files.Restart(crash ? Surviving::kRandom : Surviving::kEverything, static_cast<uint64_t>(n));
      const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(files, "/f");
      if (file.ok()) {
        EXPECT_EQ(file->Tensors().size(), mixed.tensors.size());
      } else {
        EXPECT_TRUE(absl::IsNotFound(file.status())) << file.status();
        EXPECT_FALSE(written.ok());
      }
      if (!crash) {
        EXPECT_FALSE(files.Stat("/f.tmp").ok()) << n;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::engine
