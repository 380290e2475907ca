#include "kernels/embedding/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/embedding/backends.h"
#include "kernels/testing/tensors.h"

namespace sluice::kernels {
namespace {

using ::sluice::testing::StatusIs;
using testing::Backend;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::SumTolerance;
using testing::ToleranceOf;

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;

struct Case {
  int64_t tokens, vocabulary, hidden;
  DType dtype;
};

// One row, ids that repeat within a few tokens and across many, an id that has all tokens, rows of an odd size, and a
// table much longer than the text.
constexpr Case kCases[] = {{1, 1, 1, kF},      {50, 7, 576, kF},    {200, 1000, 33, kB}, {3, 50000, 64, kB},
                           {1500, 1, 264, kB}, {1500, 40, 520, kB}, {700, 2, 36, kF}};

class EmbeddingTest : public testing::BackendTest<Case> {};

// Many repeats: the gradients of one id must add up.
std::vector<int32_t> Ids(const Case& c) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < c.tokens; ++t) ids.push_back(static_cast<int32_t>(t * t * 7919 % c.vocabulary));
  return ids;
}

TEST_P(EmbeddingTest, ForwardCopiesRows) {
  const auto& [c, backend] = GetParam();
  const std::vector<int32_t> ids = Ids(c);
  const auto weight = HostTensor::Random(c.dtype, {c.vocabulary, c.hidden}, 1);
  auto y = HostTensor::Poisoned(c.dtype, {c.tokens, c.hidden});
  const auto id_tensor = HostTensor::OfInts(ids);
  ASSERT_OK(CALL_BACKEND(backend, Forward, (EmbeddingForward{.ids = id_tensor, .weight = weight, .y = y})));
  const std::vector<double> table = weight.values();
  std::vector<double> want;
  for (const int32_t id : ids)
    want.insert(want.end(), table.begin() + id * c.hidden, table.begin() + (id + 1) * c.hidden);
  EXPECT_TENSOR_NEAR(y, want, (testing::Tolerance{0, 0}));
}

TEST_P(EmbeddingTest, BackwardAccumulates) {
  const auto& [c, backend] = GetParam();
  const std::vector<int32_t> ids = Ids(c);
  const auto dy = HostTensor::Random(c.dtype, {c.tokens, c.hidden}, 1);
  auto dweight = HostTensor::Random(kF, {c.vocabulary, c.hidden}, 2);
  std::vector<double> want = dweight.values();
  const std::vector<double> dys = dy.values();
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t i = 0; i < c.hidden; ++i) want[ids[t] * c.hidden + i] += dys[t * c.hidden + i];
  }
  const auto id_tensor = HostTensor::OfInts(ids);
  ASSERT_OK(CALL_BACKEND(backend, Backward, (EmbeddingBackward{.ids = id_tensor, .dy = dy, .dweight = dweight})));
  EXPECT_TENSOR_NEAR(dweight, want, SumTolerance(kF, static_cast<double>(c.tokens)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmbeddingTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::ValuesIn(testing::AvailableBackends())),
                         testing::BackendTestName());

TEST(EmbeddingTest, RefusesIdsOutOfRange) {
  const auto weight = HostTensor::Random(kF, {5, 8}, 1);
  auto y = HostTensor::Poisoned(kF, {3, 8});
  for (const int32_t bad : {5, -1}) {
    const auto ids = HostTensor::OfInts({0, 4, bad});
    EXPECT_THAT(
        Forward(EmbeddingForward{.ids = ids, .weight = weight, .y = y}, DefaultStream(Device::Cpu())),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("embedding: ids: slot 2 holds " + std::to_string(bad))));
  }
}

}  // namespace
}  // namespace sluice::kernels
