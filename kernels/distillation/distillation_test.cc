#include "kernels/distillation/distillation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/distillation/backends.h"
#include "kernels/testing/tensors.h"

namespace sluice::kernels {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::TestDevice;
using testing::Tolerance;

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;

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

std::string NameOfPlace(const Place& place) {
  if (place.cuda) return "cuda";
  return place.engine == Engine::kCpu ? "cpu" : "aten_on_cpu";
}

class DistillationTest : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    if (GetParam().cuda) testing::SetTestDevice(Device::Cuda(0));
  }
  void TearDown() override { testing::SetTestDevice(Device::Cpu()); }

  template <typename Args>
  absl::Status Run(const Args& args) {
    const Stream stream = DefaultStream(TestDevice());
    const bool on_cpu = GetParam().engine == Engine::kCpu;
    absl::Status status;
    if constexpr (std::is_same_v<Args, DistillationForward>) {
      status = on_cpu ? cpu::Forward(args, stream) : aten::Forward(args, stream);
    } else {
      status = on_cpu ? cpu::ForwardBackward(args, stream) : aten::ForwardBackward(args, stream);
    }
    testing::WaitForTestDevice();
    return status;
  }
};

// Random heads of any size.
struct Heads {
  Heads(DType dtype, int64_t tokens, int64_t hidden_size, int64_t teacher_size, int64_t vocabulary, uint64_t seed)
      : hidden(HostTensor::Random(dtype, {tokens, hidden_size}, seed)),
        weight(HostTensor::Random(dtype, {vocabulary, hidden_size}, seed + 1, 0.3)),
        teacher_hidden(HostTensor::Random(dtype, {tokens, teacher_size}, seed + 2)),
        teacher_weight(HostTensor::Random(dtype, {vocabulary, teacher_size}, seed + 3, 0.3)) {
    std::vector<int32_t> label, slots;
    for (int32_t t = 0; t < tokens; ++t) {
      label.push_back(static_cast<int32_t>((t * 7919 + 3) % vocabulary));
      if (t % 3 != 1) slots.push_back(t);
    }
    labels = HostTensor::OfInts(label);
    scored = HostTensor::OfInts(slots);
  }

  DistillationInputs inputs() const {
    return {.hidden = hidden,
            .weight = weight,
            .teacher_hidden = teacher_hidden,
            .teacher_weight = teacher_weight,
            .labels = labels,
            .scored = scored};
  }

  HostTensor hidden, weight, teacher_hidden, teacher_weight, labels, scored;
};

struct Results {
  HostTensor divergence, log_prob, dhidden, dweight;
};

Results PoisonedFor(const DistillationInputs& in) {
  const int64_t tokens = in.hidden.dim(0);
  return {HostTensor::Poisoned(kF, {tokens}), HostTensor::Poisoned(kF, {tokens}),
          HostTensor::Poisoned(in.hidden.dtype, in.hidden.shape), HostTensor::Poisoned(kF, in.weight.shape)};
}

DistillationForwardBackward ArgsOf(const DistillationInputs& in, float d_divergence, float d_nll, Results& results) {
  return {.in = in,
          .d_divergence = d_divergence,
          .d_nll = d_nll,
          .divergence = results.divergence,
          .log_prob = results.log_prob,
          .dhidden = results.dhidden,
          .dweight = results.dweight,
          .accumulate_dweight = false};
}

// `values` of the scored slots among `tokens` rows; 0 elsewhere.
std::vector<double> AtSlots(const std::vector<int32_t>& scored, const std::vector<double>& values, int64_t tokens) {
  const size_t width = values.size() / scored.size();
  std::vector<double> all(static_cast<size_t>(tokens) * width, 0.0);
  for (size_t i = 0; i < scored.size(); ++i) {
    for (size_t j = 0; j < width; ++j) all[static_cast<size_t>(scored[i]) * width + j] = values[i * width + j];
  }
  return all;
}

TEST_P(DistillationTest, EqualsTheOracle) {
  std::ifstream file("tests/golden/distillation/heads.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  const int64_t tokens = golden["tokens"], hidden = golden["hidden_size"], teacher = golden["teacher_hidden_size"],
                vocabulary = golden["vocab_size"];
  const std::vector<int32_t> scored = golden["scored"];
  const auto tensor = [&](const char* name, Shape shape) {
    return HostTensor::Of(kF, shape, golden[name].get<std::vector<double>>());
  };
  const HostTensor h = tensor("hidden", {tokens, hidden}), w = tensor("weight", {vocabulary, hidden}),
                   th = tensor("teacher_hidden", {tokens, teacher}),
                   tw = tensor("teacher_weight", {vocabulary, teacher}),
                   labels = HostTensor::OfInts(golden["labels"].get<std::vector<int32_t>>()),
                   slots = HostTensor::OfInts(scored);
  // A GPU adds the products in another order, and a divergence is a small difference of what they gave.
  const double bound = GetParam().cuda ? 4e-6 : 1e-6;
  const Tolerance tolerance = {.relative = bound, .absolute = bound};
  for (const nlohmann::json& c : golden["cases"]) {
    SCOPED_TRACE(c["divergence"].dump() + " top_k " + c["top_k"].dump() + " temperature " + c["temperature"].dump());
    for (const int64_t logits_bytes : {kDefaultDistillationBytes, int64_t{1}}) {
      const DistillationInputs in = {
          .hidden = h,
          .weight = w,
          .teacher_hidden = th,
          .teacher_weight = tw,
          .labels = labels,
          .scored = slots,
          .divergence = c["divergence"] == "forward_kl" ? Divergence::kForwardKl : Divergence::kReverseKl,
          .top_k = c["top_k"],
          .temperature = c["temperature"],
          .logits_bytes = logits_bytes};
      Results results = PoisonedFor(in);
      ASSERT_OK(Run(ArgsOf(in, c["d_divergence"], c["d_nll"], results)));
      EXPECT_TENSOR_NEAR(results.divergence, AtSlots(scored, c["value"], tokens), tolerance);
      EXPECT_TENSOR_NEAR(results.log_prob, AtSlots(scored, c["log_prob"], tokens), tolerance);
      EXPECT_TENSOR_NEAR(results.dhidden, AtSlots(scored, c["dhidden"], tokens), tolerance);
      EXPECT_TENSOR_NEAR(results.dweight, c["dweight"].get<std::vector<double>>(), tolerance);

      Results forward = PoisonedFor(in);
      ASSERT_OK(Run(DistillationForward{.in = in, .divergence = forward.divergence, .log_prob = forward.log_prob}));
      EXPECT_EQ(forward.divergence.values(), results.divergence.values());
      EXPECT_EQ(forward.log_prob.values(), results.log_prob.values());
    }
  }
}

TEST_P(DistillationTest, TheTeachersOwnLogitsAreAtZero) {
  Heads heads(kF, 17, 24, 24, 301, 5);
  DistillationInputs in = heads.inputs();
  in.teacher_hidden = in.hidden;
  in.teacher_weight = in.weight;
  for (const Divergence divergence : {Divergence::kForwardKl, Divergence::kReverseKl}) {
    for (const int64_t top_k : {0, 8}) {
      in.divergence = divergence;
      in.top_k = top_k;
      Results results = PoisonedFor(in);
      ASSERT_OK(Run(ArgsOf(in, 1.0f, 0.0f, results)));
      const std::vector<double> zero(17, 0.0);
      EXPECT_TENSOR_NEAR(results.divergence, zero, (Tolerance{.relative = 0, .absolute = 2e-6}));
      EXPECT_TENSOR_NEAR(results.dhidden, std::vector<double>(17 * 24, 0.0),
                         (Tolerance{.relative = 0, .absolute = 2e-6}));
    }
  }
}

// One token that is all but certain, and others that are all but impossible: nothing overflows, divides by 0 or is NaN.
TEST_P(DistillationTest, CertainDistributionsStayFinite) {
  const int64_t vocabulary = 9;
  std::vector<double> student(vocabulary, 0.0), teacher(vocabulary, 0.0);
  student[2] = 150;
  teacher[5] = 150;
  const HostTensor one = HostTensor::Of(kF, {1, 1}, {1.0}), w = HostTensor::Of(kF, {vocabulary, 1}, student),
                   tw = HostTensor::Of(kF, {vocabulary, 1}, teacher), labels = HostTensor::OfInts({4}),
                   scored = HostTensor::OfInts({0});
  for (const Divergence divergence : {Divergence::kForwardKl, Divergence::kReverseKl}) {
    for (const int64_t top_k : {0, 1, 3}) {
      const DistillationInputs in = {.hidden = one,
                                     .weight = w,
                                     .teacher_hidden = one,
                                     .teacher_weight = tw,
                                     .labels = labels,
                                     .scored = scored,
                                     .divergence = divergence,
                                     .top_k = top_k};
      Results results = PoisonedFor(in);
      ASSERT_OK(Run(ArgsOf(in, 1.0f, 0.5f, results)));
      EXPECT_GT(results.divergence.values()[0], 50);
      EXPECT_LE(results.divergence.values()[0], 151);
      for (const double value : results.dweight.values()) EXPECT_TRUE(std::isfinite(value)) << top_k;
      EXPECT_TRUE(std::isfinite(results.dhidden.values()[0]));
    }
  }
}

TEST_P(DistillationTest, PiecesAndPlacesChangeNothing) {
  Heads heads(kF, 50, 16, 24, 120, 9);
  DistillationInputs in = heads.inputs();
  in.top_k = 7;
  Results whole = PoisonedFor(in);
  ASSERT_OK(Run(ArgsOf(in, 0.5f, 0.25f, whole)));
  in.logits_bytes = 40'000;  // a dozen rows
  Results pieces = PoisonedFor(in);
  // dhidden in hidden's place, and added to what is there.
  HostTensor hidden = heads.hidden;
  HostTensor dweight = HostTensor::Random(kF, in.weight.shape, 77);
  std::vector<double> want = dweight.values();
  for (size_t i = 0; i < want.size(); ++i) want[i] += whole.dweight.values()[i];
  DistillationForwardBackward args = ArgsOf(in, 0.5f, 0.25f, pieces);
  args.in.hidden = hidden;
  args.dhidden = hidden;
  args.dweight = dweight;
  args.accumulate_dweight = true;
  ASSERT_OK(Run(args));
  EXPECT_TENSOR_NEAR(pieces.divergence, whole.divergence.values(), testing::ToleranceOf(kF));
  EXPECT_TENSOR_NEAR(hidden, whole.dhidden.values(), testing::ToleranceOf(kF));
  EXPECT_TENSOR_NEAR(dweight, want, testing::ToleranceOf(kF));
}

TEST_P(DistillationTest, Bfloat16IsWithinItsRounding) {
  Heads heads(kB, 33, 64, 96, 257, 21);
  DistillationInputs in = heads.inputs();
  Results results = PoisonedFor(in);
  ASSERT_OK(Run(ArgsOf(in, 1.0f, 0.0f, results)));
  // The same numbers in fp32.
  const auto widened = [](const HostTensor& tensor, ConstTensorView view) {
    return HostTensor::Of(kF, view.shape, tensor.values());
  };
  const HostTensor h = widened(heads.hidden, in.hidden), w = widened(heads.weight, in.weight),
                   th = widened(heads.teacher_hidden, in.teacher_hidden),
                   tw = widened(heads.teacher_weight, in.teacher_weight);
  in.hidden = h;
  in.weight = w;
  in.teacher_hidden = th;
  in.teacher_weight = tw;
  Results exact = PoisonedFor(in);
  ASSERT_OK(Run(ArgsOf(in, 1.0f, 0.0f, exact)));
  EXPECT_TENSOR_NEAR(results.divergence, exact.divergence.values(), (Tolerance{.relative = 1e-4, .absolute = 1e-4}))
      << "logits are in fp32";
  EXPECT_TENSOR_NEAR(results.dhidden, exact.dhidden.values(), testing::SumTolerance(kB, 257));
  EXPECT_TENSOR_NEAR(results.dweight, exact.dweight.values(), (Tolerance{.relative = 1e-2, .absolute = 1e-2}));
}

TEST_P(DistillationTest, WithoutScoredSlotsGradientsAreZero) {
  Heads heads(kF, 5, 8, 8, 11, 2);
  DistillationInputs in = heads.inputs();
  in.scored = ConstTensorView(nullptr, DType::kInt32, {0}, TestDevice());
  Results results = PoisonedFor(in);
  ASSERT_OK(Run(ArgsOf(in, 1.0f, 1.0f, results)));
  EXPECT_EQ(results.dweight.values(), std::vector<double>(88, 0.0));
  EXPECT_EQ(results.dhidden.values(), std::vector<double>(40, 0.0));
  EXPECT_EQ(results.divergence.values(), std::vector<double>(5, 0.0));
}

INSTANTIATE_TEST_SUITE_P(Places, DistillationTest, ::testing::ValuesIn(Places()),
                         [](const auto& info) { return NameOfPlace(info.param); });

TEST(DistillationCheckTest, BadArgumentsAreNamed) {
  Heads heads(kF, 5, 8, 6, 11, 2);
  Results results = PoisonedFor(heads.inputs());
  const auto status = [&](auto change) {
    DistillationForwardBackward args = ArgsOf(heads.inputs(), 1.0f, 0.0f, results);
    change(args);
    return ForwardBackward(args, Stream{});
  };
  EXPECT_OK(status([](auto&) {}));
  const auto invalid = [](const char* argument) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(argument));
  };
  EXPECT_THAT(status([](auto& args) { args.in.temperature = 0; }), invalid("temperature"));
  EXPECT_THAT(status([](auto& args) { args.in.top_k = -1; }), invalid("top_k"));
  EXPECT_THAT(status([](auto& args) { args.in.logits_bytes = 0; }), invalid("logits_bytes"));
  EXPECT_THAT(status([](auto& args) { args.in.teacher_weight = args.in.weight; }), invalid("teacher_hidden"));
  const HostTensor labels = HostTensor::OfInts({0, 0, 99, 0, 0});
  EXPECT_THAT(status([&](auto& args) { args.in.labels = labels; }), invalid("slot 2 holds 99"));
  const HostTensor fewer = HostTensor::Random(kF, {10, 6}, 1);
  EXPECT_THAT(status([&](auto& args) { args.in.teacher_weight = fewer; }), invalid("teacher_weight"));
}

TEST(DistillationBytesTest, GrowWithTheTokensUpToTheBound) {
  EXPECT_EQ(DistillationPieceRows(10, 1000, int64_t{1} << 30), 10);
  EXPECT_EQ(DistillationPieceRows(10, 1000, 1), 1);
  EXPECT_EQ(DistillationPieceRows(0, 1000, 1), 1);
  EXPECT_LE(DistillationBytes(100'000, 64, 64, 50'000, int64_t{256} << 20), int64_t{257} << 20);
}

}  // namespace
}  // namespace sluice::kernels
