#include "kernels/matmul/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/matmul/backends.h"
#include "kernels/testing/tensors.h"

namespace sluice::kernels {
namespace {

using ::sluice::testing::StatusIs;
using testing::Backend;
using ::testing::HasSubstr;
using testing::HostTensor;

struct Case {
  int64_t rows, columns, depth;
  DType in, out;
  bool transpose_a, transpose_b;
  float alpha, beta;
  int64_t padding;  // extra elements per row of each matrix
  bool bias = false;
};

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;

// Shapes below one tile, exactly tiles, past the cache blocks (144 rows, 3072 columns, 352 deep), decode-like.
constexpr Case kCases[] = {
    {1, 1, 1, kF, kF, false, false, 1.0f, 0.0f, 0},          {6, 16, 8, kF, kF, false, false, 1.0f, 0.0f, 0},
    {7, 17, 9, kF, kF, false, true, 1.0f, 0.0f, 3},          {13, 33, 650, kF, kF, true, false, 1.0f, 1.0f, 0},
    {150, 40, 353, kF, kF, true, true, 0.5f, 1.0f, 5},       {300, 64, 64, kF, kF, false, false, -2.0f, 0.25f, 0},
    {2, 5000, 70, kF, kF, false, true, 2.0f, 0.0f, 0},       {4, 50, 333, kB, kB, false, true, 1.0f, 1.0f, 2},
    {10, 6200, 40, kF, kF, false, true, 1.0f, 0.0f, 0},      {10, 3100, 33, kB, kB, false, true, 1.0f, 1.0f, 0},
    {31, 47, 400, kB, kF, true, false, 1.0f, 1.0f, 0},       {31, 47, 700, kB, kB, false, false, 0.5f, 0.0f, 1},
    {200, 100, 200, kB, kB, true, true, 1.0f, 0.5f, 0},      {5, 24, 24, kB, kF, false, true, 1.0f, 0.0f, 0},
    {3, 40, 64, kF, kF, false, true, 1.0f, 0.0f, 0, true},   {70, 96, 64, kF, kF, false, true, 1.0f, 0.0f, 0, true},
    {2, 3200, 48, kB, kB, false, true, 1.0f, 0.0f, 0, true}, {70, 3104, 64, kB, kB, false, true, 0.5f, 0.0f, 8, true},
};

class MatMulTest : public testing::BackendTest<Case> {};

TEST_P(MatMulTest, EqualsDoubleReference) {
  const auto& [c, backend] = GetParam();
  const Shape a_shape = c.transpose_a ? Shape{c.depth, c.rows} : Shape{c.rows, c.depth};
  const Shape b_shape = c.transpose_b ? Shape{c.columns, c.depth} : Shape{c.depth, c.columns};
  const auto a = HostTensor::Random(c.in, a_shape, 1, 1.0, a_shape[1] + c.padding);
  const auto b = HostTensor::Random(c.in, b_shape, 2, 1.0, b_shape[1] + c.padding);
  const Shape out_shape = {c.rows, c.columns};
  auto out = c.beta == 0.0f ? HostTensor::Poisoned(c.out, out_shape, c.columns + c.padding)
                            : HostTensor::Random(c.out, out_shape, 3, 1.0, c.columns + c.padding);

  const auto bias = c.bias ? HostTensor::Random(c.out, {c.columns}, 4) : HostTensor();

  const std::vector<double> a_values = a.values();
  const std::vector<double> b_values = b.values();
  const std::vector<double> bias_values = c.bias ? bias.values() : std::vector<double>(c.columns, 0.0);
  std::vector<double> want = out.values();
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      double sum = 0.0;
      for (int64_t p = 0; p < c.depth; ++p) {
        sum += a_values[c.transpose_a ? p * c.rows + i : i * c.depth + p] *
               b_values[c.transpose_b ? j * c.depth + p : p * c.columns + j];
      }
      double& to = want[i * c.columns + j];
      to = c.alpha * sum + (c.beta == 0.0f ? bias_values[j] : c.beta * to);
    }
  }

  const MatMul args = {.a = a,
                       .transpose_a = c.transpose_a,
                       .b = b,
                       .transpose_b = c.transpose_b,
                       .c = out,
                       .alpha = c.alpha,
                       .beta = c.beta,
                       .bias = bias};
  ASSERT_OK(CALL_BACKEND(backend, Run, args));
  EXPECT_TENSOR_NEAR(out, want, testing::SumTolerance(c.out, static_cast<double>(c.depth)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, MatMulTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

struct Float8Case {
  int64_t rows, columns, depth;
  DType out;
  float beta;
  int64_t padding;
};

constexpr Float8Case kFloat8Cases[] = {
    {16, 16, 16, kF, 0.0f, 0}, {37, 48, 160, kB, 0.0f, 16}, {300, 272, 400, kF, 1.0f, 0}, {129, 512, 96, kB, 0.5f, 0}};

class Float8MatMulTest : public testing::BackendTest<Float8Case> {};

TEST_P(Float8MatMulTest, EqualsDoubleReferenceOfWhatIsStored) {
  const auto& [c, backend] = GetParam();
  const auto a = HostTensor::Random(DType::kFloat8, {c.rows, c.depth}, 1, 1.0, c.depth + c.padding);
  const auto b = HostTensor::Random(DType::kFloat8, {c.columns, c.depth}, 2, 1.0, c.depth + c.padding);
  const auto scale_a = HostTensor::Of(kF, {1}, {0.5}), scale_b = HostTensor::Of(kF, {1}, {0.25});
  auto out = c.beta == 0.0f ? HostTensor::Poisoned(c.out, {c.rows, c.columns})
                            : HostTensor::Random(c.out, {c.rows, c.columns}, 3);
  const std::vector<double> a_values = a.values(), b_values = b.values();
  std::vector<double> want = out.values();
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.columns; ++j) {
      double sum = 0.0;
      for (int64_t p = 0; p < c.depth; ++p) sum += a_values[i * c.depth + p] * b_values[j * c.depth + p];
      double& to = want[i * c.columns + j];
      to = 2.0 * 0.5 * 0.25 * sum + (c.beta == 0.0f ? 0.0 : c.beta * to);
    }
  }
  ASSERT_OK(CALL_BACKEND(backend, Run,
                         (MatMul{.a = a,
                                 .b = b,
                                 .transpose_b = true,
                                 .c = out,
                                 .alpha = 2.0f,
                                 .beta = c.beta,
                                 .scale_a = scale_a,
                                 .scale_b = scale_b})));
  // The tensor cores add fp8 products with 14 bits or so after the point of the largest.
  testing::Tolerance tolerance = testing::SumTolerance(c.out, static_cast<double>(c.depth));
  if (backend == Backend::kCuda) tolerance.absolute += 1e-3 * std::sqrt(static_cast<double>(c.depth));
  EXPECT_TENSOR_NEAR(out, want, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Float8MatMulTest,
                         ::testing::Combine(::testing::ValuesIn(kFloat8Cases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(Float8Test, RoundsToNearestAndSaturates) {
  const std::pair<float, uint8_t> cases[] = {
      {0.0f, 0x00},      {-0.0f, 0x80},   {1.0f, 0x38},         {-1.0f, 0xB8},         {448.0f, 0x7E},
      {1e9f, 0x7E},      {-1e9f, 0xFE},   {0.001953125f, 0x01}, {0.0009765625f, 0x00}, {0.0029296875f, 0x02},
      {0.015625f, 0x08}, {1.0625f, 0x38}, {1.1875f, 0x3A},      {15.9f, 0x58},         {447.0f, 0x7E}};
  for (const auto& [value, bits] : cases) EXPECT_EQ(Float8(value).bits, bits) << value;
  for (int bits = 0; bits < 256; ++bits) {
    Float8 stored;
    stored.bits = static_cast<uint8_t>(bits);
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(static_cast<float>(stored)));
    } else {
      EXPECT_EQ(Float8(static_cast<float>(stored)).bits, bits);
    }
  }
}

TEST(Float8Test, NamesWhatAProductDoesNotTake) {
  const auto a = HostTensor::Random(DType::kFloat8, {4, 24}, 1), b = HostTensor::Random(DType::kFloat8, {16, 24}, 2);
  const auto scale = HostTensor::Of(kF, {1}, {1.0});
  auto out = HostTensor::Poisoned(kF, {4, 16});
  MatMul args = {.a = a, .b = b, .transpose_b = true, .c = out, .scale_a = scale, .scale_b = scale};
  EXPECT_THAT(kernels::Run(args, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("K = 24")));
  args.scale_b = {};
  EXPECT_THAT(kernels::Run(args, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("scale_b")));
  args.transpose_b = false;
  EXPECT_THAT(kernels::Run(args, DefaultStream(Device::Cpu())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("A B^T")));
}

TEST(MatMulTest, ResultDoesNotDependOnWhereTheArraysLie) {
  const auto a = HostTensor::Random(kF, {37, 130}, 1);
  const auto b = HostTensor::Random(kF, {130, 50}, 2);
  auto out = HostTensor::Poisoned(kF, {37, 50});
  ASSERT_OK(kernels::Run(MatMul{.a = a, .b = b, .c = out}, DefaultStream(Device::Cpu())));
  std::vector<float> moved(1 + 37 * 130);
  std::copy_n(a.view().as<float>(), 37 * 130, moved.begin() + 1);
  auto again = HostTensor::Poisoned(kF, {37, 50});
  ASSERT_OK(kernels::Run(MatMul{.a = ConstTensorView(moved.data() + 1, {37, 130}), .b = b, .c = again},
                         DefaultStream(Device::Cpu())));
  EXPECT_EQ(out.bytes(), again.bytes());
}

// One row, few rows (another loop order), several blocks of rows; a depth of several steps; an edge in both directions.
TEST(MatMulTest, ARowDoesNotDependOnTheOthers) {
  for (const DType dtype : {kF, kB}) {
    const auto a = HostTensor::Random(dtype, {300, 750}, 1);
    const auto b = HostTensor::Random(dtype, {43, 750}, 2);
    const auto bias = HostTensor::Random(dtype, {43}, 3);
    auto all = HostTensor::Poisoned(dtype, {300, 43});
    const Stream cpu = DefaultStream(Device::Cpu());
    ASSERT_OK(cpu::Run(MatMul{.a = a, .b = b, .transpose_b = true, .c = all, .bias = bias}, cpu));
    for (const int64_t rows : {1, 5, 64, 65, 299}) {
      auto some = HostTensor::Poisoned(dtype, {rows, 43});
      ASSERT_OK(cpu::Run(
          MatMul{.a = a.view().Rows(300 - rows, 300), .b = b, .transpose_b = true, .c = some, .bias = bias}, cpu));
      const std::vector<double> whole = all.values();
      EXPECT_EQ(some.values(), std::vector<double>(whole.end() - rows * 43, whole.end())) << rows << " rows";
    }
  }
}

TEST(MatMulTest, NamesTheWrongArgument) {
  const auto a = HostTensor::Random(kF, {4, 8}, 1);
  const auto b = HostTensor::Random(kF, {9, 5}, 2);
  auto out = HostTensor::Poisoned(kF, {4, 5});
  const Stream cpu = DefaultStream(Device::Cpu());
  EXPECT_THAT(kernels::Run(MatMul{.a = a, .b = b, .c = out}, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("matmul: b: expected fp32 [8, 5] on cpu, got fp32 [9, 5] on cpu")));
  const auto b_bf16 = HostTensor::Random(kB, {8, 5}, 2);
  EXPECT_THAT(kernels::Run(MatMul{.a = a, .b = b_bf16, .c = out}, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("matmul: b:")));
  const auto b_fits = HostTensor::Random(kF, {8, 5}, 2);
  auto out_bf16 = HostTensor::Poisoned(kB, {4, 5});
  EXPECT_THAT(kernels::Run(MatMul{.a = a, .b = b_fits, .c = out_bf16}, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("matmul: c:")));
  auto sum = HostTensor::Random(kF, {4, 5}, 3);
  const auto bias = HostTensor::Random(kF, {5}, 4);
  EXPECT_THAT(kernels::Run(MatMul{.a = a, .b = b_fits, .c = sum, .beta = 1.0f, .bias = bias}, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("matmul: bias: given with a beta that is not 0")));
  EXPECT_THAT(kernels::Run(MatMul{.a = a, .b = b_fits}, cpu),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got nothing")));
}

}  // namespace
}  // namespace sluice::kernels
