#include "kernels/value_head/value_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/testing/tensors.h"
#include "kernels/value_head/backends.h"

namespace sluice::kernels {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::SumTolerance;
using testing::TestDevice;
using testing::ToleranceOf;

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;

struct Case {
  int64_t tokens, hidden;
  DType dtype;
};

// One element, a hidden size on no vector border, many tokens, and published sizes.
constexpr Case kCases[] = {{1, 1, kF}, {7, 33, kF}, {2000, 64, kF}, {65, 576, kB}, {3, 4096, kB}, {1500, 40, kB}};

enum class Engine : uint8_t { kCpu, kAten };

// The back ends on every device they are for: LibTorch's code runs on the CPU too.
struct Place {
  Engine engine;
  bool cuda;
};

std::vector<Place> Places() {
  std::vector<Place> places = {{Engine::kCpu, false}, {Engine::kAten, false}};
  if (testing::AvailableBackends().size() > 1) places.push_back({Engine::kAten, true});
  return places;
}

class ValueHeadTest : public ::testing::TestWithParam<std::tuple<Case, Place>> {
 protected:
  void SetUp() override {
    if (std::get<1>(GetParam()).cuda) testing::SetTestDevice(Device::Cuda(0));
  }
  void TearDown() override { testing::SetTestDevice(Device::Cpu()); }

  template <typename Args>
  absl::Status Run(const Args& args) {
    const Stream stream = DefaultStream(TestDevice());
    const bool on_cpu = std::get<1>(GetParam()).engine == Engine::kCpu;
    absl::Status status;
    if constexpr (std::is_same_v<Args, ValueHeadForward>) {
      status = on_cpu ? cpu::Forward(args, stream) : aten::Forward(args, stream);
    } else {
      status = on_cpu ? cpu::Backward(args, stream) : aten::Backward(args, stream);
    }
    testing::WaitForTestDevice();
    return status;
  }
};

TEST_P(ValueHeadTest, ForwardIsTheProductWithTheWeight) {
  const Case& c = std::get<0>(GetParam());
  const auto hidden = HostTensor::Random(c.dtype, {c.tokens, c.hidden}, 1);
  const auto weight = HostTensor::Random(c.dtype, {1, c.hidden}, 2);
  auto value = HostTensor::Poisoned(kF, {c.tokens});
  ASSERT_OK(Run(ValueHeadForward{.hidden = hidden, .weight = weight, .value = value}));
  const std::vector<double> rows = hidden.values(), w = weight.values();
  std::vector<double> want(static_cast<size_t>(c.tokens), 0.0);
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t i = 0; i < c.hidden; ++i) want[t] += rows[t * c.hidden + i] * w[i];
  }
  EXPECT_TENSOR_NEAR(value, want, SumTolerance(kF, static_cast<double>(c.hidden)));
}

TEST_P(ValueHeadTest, BackwardIsTheDerivativeAlsoInPlace) {
  const Case& c = std::get<0>(GetParam());
  const auto weight = HostTensor::Random(c.dtype, {1, c.hidden}, 2);
  const auto d_value = HostTensor::Random(kF, {c.tokens}, 3);
  for (const bool in_place : {false, true}) {
    for (const bool accumulate : {false, true}) {
      auto hidden = HostTensor::Random(c.dtype, {c.tokens, c.hidden}, 1);
      auto apart = HostTensor::Poisoned(c.dtype, {c.tokens, c.hidden});
      auto dweight = accumulate ? HostTensor::Random(kF, {1, c.hidden}, 4) : HostTensor::Poisoned(kF, {1, c.hidden});
      const std::vector<double> rows = hidden.values(), w = weight.values(), d = d_value.values();
      std::vector<double> want_dweight =
          accumulate ? dweight.values() : std::vector<double>(static_cast<size_t>(c.hidden), 0.0);
      std::vector<double> want_dhidden(rows.size());
      for (int64_t t = 0; t < c.tokens; ++t) {
        for (int64_t i = 0; i < c.hidden; ++i) {
          want_dweight[i] += d[t] * rows[t * c.hidden + i];
          want_dhidden[t * c.hidden + i] = d[t] * w[i];
        }
      }
      HostTensor& dhidden = in_place ? hidden : apart;
      ASSERT_OK(Run(ValueHeadBackward{.hidden = hidden,
                                      .weight = weight,
                                      .d_value = d_value,
                                      .dhidden = dhidden,
                                      .dweight = dweight,
                                      .accumulate_dweight = accumulate}));
      EXPECT_TENSOR_NEAR(dhidden, want_dhidden, ToleranceOf(c.dtype));
      EXPECT_TENSOR_NEAR(dweight, want_dweight, SumTolerance(kF, static_cast<double>(c.tokens)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ValueHeadTest,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::ValuesIn(Places())),
                         [](const auto& info) {
                           const Place& place = std::get<1>(info.param);
                           const std::string name = place.engine == Engine::kCpu ? "cpu" : place.cuda ? "cuda" : "aten";
                           return name + "_" + std::to_string(info.index / Places().size());
                         });

TEST(ValueHeadArgumentsTest, AreNamed) {
  const auto hidden = HostTensor::Random(kF, {3, 8}, 1), weight = HostTensor::Random(kF, {1, 8}, 2);
  const auto wide = HostTensor::Random(kF, {2, 8}, 2), narrow = HostTensor::Random(kB, {1, 8}, 2);
  auto value = HostTensor::Poisoned(kF, {3}), short_value = HostTensor::Poisoned(kF, {2});
  auto dweight = HostTensor::Poisoned(kF, {1, 8}), dhidden = HostTensor::Poisoned(kF, {3, 8});
  const Stream stream = DefaultStream(Device::Cpu());
  const auto refused = [](const char* argument) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string("value_head: ") + argument + ":"));
  };
  EXPECT_THAT(Forward(ValueHeadForward{.hidden = hidden, .weight = wide, .value = value}, stream), refused("weight"));
  EXPECT_THAT(Forward(ValueHeadForward{.hidden = hidden, .weight = narrow, .value = value}, stream), refused("weight"));
  EXPECT_THAT(Forward(ValueHeadForward{.hidden = hidden, .weight = weight, .value = short_value}, stream),
              refused("value"));
  ValueHeadBackward backward = {
      .hidden = hidden, .weight = weight, .d_value = value, .dhidden = dhidden, .dweight = dweight};
  ASSERT_OK(Backward(backward, stream));
  backward.d_value = short_value;
  EXPECT_THAT(Backward(backward, stream), refused("d_value"));
  backward.d_value = value;
  backward.dweight = dhidden;
  EXPECT_THAT(Backward(backward, stream), refused("dweight"));
}

}  // namespace
}  // namespace sluice::kernels
