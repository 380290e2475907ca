#include "engine/checkpoint/float_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "common/testing/status_matchers.h"
#include "engine/checkpoint/safetensors_file.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

bool SameFloat(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

std::vector<float> Widened(const TensorData& tensor) {
  std::vector<float> values(static_cast<size_t>(*ElementCount(tensor.spec.shape)));
  EXPECT_OK(ConvertToFloat32(tensor.spec.dtype, tensor.bytes, values));
  return values;
}

class GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(file_, SafetensorsFile::Open(PosixFileSystem(), "tests/golden/checkpoint/floats.safetensors"));
  }
  TensorData Tensor(const std::string& name) { return *file_->Tensor(name); }

  absl::StatusOr<SafetensorsFile> file_ = absl::UnknownError("not opened");
};

TEST_F(GoldenTest, NarrowsAsTorchDoes) {
  const std::vector<float> values = Widened(Tensor("f32"));
  ASSERT_GT(values.size(), 2500u);
  for (const char* name : {"f16", "bf16"}) {
    const TensorData want = Tensor(name);
    std::vector<std::byte> got(want.bytes.size());
    ASSERT_OK(ConvertFromFloat32(values, want.spec.dtype, got));
    const std::vector<float> want_values = Widened(want);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) {
        EXPECT_TRUE(std::isnan(want_values[i])) << name << " of " << values[i];
        continue;
      }
      EXPECT_EQ(std::memcmp(&got[2 * i], &want.bytes[2 * i], 2), 0) << name << " of " << values[i];
    }
  }
}

TEST_F(GoldenTest, WidensEightBitFloatsAsTorchDoes) {
  for (const std::string name : {"e4m3", "e5m2"}) {
    const std::vector<float> got = Widened(Tensor(name)), want = Widened(Tensor(name + "_as_f32"));
    ASSERT_EQ(got.size(), 256u);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(SameFloat(got[i], want[i])) << name << " " << i << ": " << got[i];
  }
}

// Every 16-bit pattern widens exactly and narrows back to itself. The compiler's own half type is the other
// implementation.
TEST(FloatConversionTest, EverySixteenBitPattern) {
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const uint16_t bits = static_cast<uint16_t>(pattern);
    const float half = Float32FromFloat16(bits), bfloat = Float32FromBFloat16(bits);
#if defined(__FLT16_MANT_DIG__)
    ASSERT_TRUE(SameFloat(half, static_cast<float>(std::bit_cast<_Float16>(bits)))) << pattern;
#endif
    ASSERT_EQ(std::bit_cast<uint32_t>(bfloat), pattern << 16);
    if (!std::isnan(half)) {
      ASSERT_EQ(Float16FromFloat32(half), bits);
    }
    if (!std::isnan(bfloat)) {
      ASSERT_EQ(BFloat16FromFloat32(bfloat), bits);
    }
    if (std::isnan(half)) {
      ASSERT_TRUE(std::isnan(Float32FromFloat16(Float16FromFloat32(half)))) << pattern;
    }
    if (std::isnan(bfloat)) {
      ASSERT_TRUE(std::isnan(Float32FromBFloat16(BFloat16FromFloat32(bfloat)))) << pattern;
    }
  }
}

TEST(FloatConversionTest, NaNWithOnlyLowBitsStaysNaN) {
  const float nan = std::bit_cast<float>(0x7F800001u);
  EXPECT_TRUE(std::isnan(Float32FromBFloat16(BFloat16FromFloat32(nan))));
  EXPECT_TRUE(std::isnan(Float32FromFloat16(Float16FromFloat32(nan))));
}

TEST(FloatConversionTest, DoubleUnalignedAndErrors) {
  const double value = -2.5;
  std::byte storage[9];
  std::memcpy(storage + 1, &value, 8);  // at an odd address
  float result = 0;
  EXPECT_OK(ConvertToFloat32(DataType::kF64, std::span(storage).subspan(1), std::span(&result, 1)));
  EXPECT_EQ(result, -2.5f);
  EXPECT_THAT(ConvertToFloat32(DataType::kF64, std::span(storage).first(4), std::span(&result, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 bytes of F64")));
  EXPECT_THAT(ConvertToFloat32(DataType::kI32, std::span(storage).first(4), std::span(&result, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("I32")));
  EXPECT_THAT(ConvertFromFloat32(std::span<const float>(&result, 1), DataType::kF8E4M3, std::span(storage).first(1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("F8_E4M3")));
}

}  // namespace
}  // namespace sluice::engine
