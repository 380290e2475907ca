#include "kernels/matmul/algorithm_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "kernels/matmul/gemm_plan.h"

namespace sluice::kernels::cuda {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kMachine[] = "130100 NVIDIA H200";

class AlgorithmFileTest : public ::testing::Test {
 protected:
  static SavedAlgorithm Algorithm(uint64_t first, double microseconds) {
    SavedAlgorithm saved = {};
    for (size_t i = 0; i < 8; ++i) saved.algorithm.data[i] = first + i * 0x1234567890ABCDEF;
    saved.microseconds = microseconds;
    return saved;
  }

  sluice::testing::TempDir folder_;
  const std::string path_ = folder_.Join("gemm.txt");
};

TEST_F(AlgorithmFileTest, KeepsEveryBitOfAChoice) {
  const SavedAlgorithms want = {{"1 2 3", Algorithm(0, 12.5)}, {"4 5 6", Algorithm(~uint64_t{0}, 0.125)}};
  ASSERT_OK(WriteAlgorithms(path_, kMachine, want));
  ASSERT_OK_AND_ASSIGN(const SavedAlgorithms got, ReadAlgorithms(path_, kMachine));
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [key, saved] : want) {
    ASSERT_TRUE(got.contains(key));
    EXPECT_EQ(std::memcmp(&got.at(key).algorithm, &saved.algorithm, sizeof(saved.algorithm)), 0);
    EXPECT_EQ(got.at(key).microseconds, saved.microseconds);
  }
}

TEST_F(AlgorithmFileTest, AFileThatIsNotThereOrOfAnotherMachineIsEmpty) {
  ASSERT_OK_AND_ASSIGN(const SavedAlgorithms missing, ReadAlgorithms(path_, kMachine));
  EXPECT_TRUE(missing.empty());
  ASSERT_OK(WriteAlgorithms(path_, kMachine, {{"1 2 3", Algorithm(7, 1)}}));
  ASSERT_OK_AND_ASSIGN(const SavedAlgorithms other, ReadAlgorithms(path_, "130100 NVIDIA H100"));
  EXPECT_TRUE(other.empty());
}

TEST_F(AlgorithmFileTest, ADamagedLineIsNamed) {
  ASSERT_OK(WriteAlgorithms(path_, kMachine, {{"1 2 3", Algorithm(7, 1)}}));
  std::ofstream(path_, std::ios::app) << "4 5 6 | 1 2 3 | 4.0\n";
  EXPECT_THAT(ReadAlgorithms(path_, kMachine),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gemm.txt:3: not a line of a GEMM tuning file")));
}

TEST_F(AlgorithmFileTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(WriteAlgorithms(folder_.Join("none/gemm.txt"), kMachine, {}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("none/gemm.txt")));
}

// cuBLASLt sees the transposed problem; what changes its plan must change the key, what does not must not.
TEST(GemmKeyTest, NamesWhatMattersToThePlan) {
  alignas(256) static uint16_t memory[4096];
  const auto view = [](int64_t offset, Shape shape) {
    return TensorView(memory + offset, DType::kBFloat16, shape, Device::Cpu());
  };
  const MatMul product = {
      .a = view(0, {8, 16}), .b = view(512, {24, 16}), .transpose_b = true, .c = view(1024, {8, 24})};
  const std::string key = ToString(KeyOf(product));
  EXPECT_EQ(key, "24 8 16 16 16 24 TN bf16 bf16 set plain 32 32 16");
  MatMul other = product;
  other.alpha = 3.0f;
  EXPECT_EQ(ToString(KeyOf(other)), key) << "a scalar is an argument of the launch";
  other = product;
  other.beta = 1.0f;
  EXPECT_NE(ToString(KeyOf(other)), key);
  other = product;
  other.bias = view(2048, {24});
  EXPECT_NE(ToString(KeyOf(other)), key);
  other = product;
  other.a = view(1, {8, 16});
  EXPECT_EQ(KeyOf(other).align_b, 2) << "an operand that lies elsewhere may need another kernel";
}

}  // namespace
}  // namespace sluice::kernels::cuda
