#include "engine/roles/gpu_check.h"

#include "common/testing/status_matchers.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;

GpuFacts Usable() {
  return {.driver_version = 13020,
          .built_version = 13000,
          .gpus = 1,
          .name = "NVIDIA H200",
          .major = 9,
          .minor = 0,
          .has_kernels = true,
          .built_for = "90a"};
}

struct Case {
  const char* name;
  void (*change)(GpuFacts&);
  const char* said;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

class CheckGpuTest : public ::testing::TestWithParam<Case> {};

TEST_P(CheckGpuTest, SaysWhatIsWrongAndWhatToDo) {
  GpuFacts facts = Usable();
  GetParam().change(facts);
  EXPECT_THAT(CheckGpu(facts), StatusIs(GetParam().code, GetParam().said));
}

INSTANTIATE_TEST_SUITE_P(
    Facts, CheckGpuTest,
    ::testing::Values(
        Case{"NoDriver", [](GpuFacts& f) { f = {.built_version = 13000, .problem = "no driver"}; },
             "there is no NVIDIA driver on this machine; install one that nvidia-smi runs with"},
        Case{"OldDriver",
             [](GpuFacts& f) {
               f.driver_version = 12040;
               f.gpus = 0;
               f.problem = "CUDA driver version is insufficient for CUDA runtime version";
             },
             "the NVIDIA driver serves CUDA 12.4 and this program needs 13.0 or later; update the driver (nvidia-smi "
             "shows both versions)"},
        Case{"NoGpu", [](GpuFacts& f) { f.gpus = 0; },
             "the CUDA driver finds no GPU; check with nvidia-smi, and that CUDA_VISIBLE_DEVICES does not hide it"},
        Case{"CountFails",
             [](GpuFacts& f) {
               f.gpus = 0;
               f.problem = "system not yet initialized";
             },
             "the CUDA driver finds no GPU (system not yet initialized); check with nvidia-smi, and that "
             "CUDA_VISIBLE_DEVICES does not hide it",
             absl::StatusCode::kFailedPrecondition},
        Case{"Busy",
             [](GpuFacts& f) {
               f.has_kernels = false;
               f.problem = "CUDA-capable device(s) is/are busy or unavailable";
             },
             "the GPU (NVIDIA H200) cannot be used: CUDA-capable device(s) is/are busy or unavailable; look with "
             "nvidia-smi for what holds it",
             absl::StatusCode::kFailedPrecondition},
        Case{"OtherArchitecture",
             [](GpuFacts& f) {
               f.name = "NVIDIA A100";
               f.major = 8;
               f.has_kernels = false;
             },
             "the NVIDIA A100 has compute capability 8.0 and this program holds kernels for 90a only; build it with "
             "-DSLUICE_CUDA_ARCHITECTURES=80"}),
    [](const auto& info) { return info.param.name; });

TEST(CheckGpuTest, UsableGpu) {
  EXPECT_OK(CheckGpu(Usable()));
  GpuFacts newer = Usable();
  newer.driver_version = 14000;
  EXPECT_OK(CheckGpu(newer));
  newer.built_version = 13030;  // of the driver's major version: served
  newer.driver_version = 13000;
  EXPECT_OK(CheckGpu(newer));
}

// The facts of this machine, whatever it has, can be read and judged.
TEST(ReadGpuFactsTest, AreOfThisProgram) {
  const GpuFacts facts = ReadGpuFacts();
  EXPECT_GE(facts.built_version, 13000);
  EXPECT_NE(facts.built_for, "");
  EXPECT_TRUE(facts.gpus == 0 || facts.name + facts.problem != "");
  EXPECT_EQ(CheckGpu(facts).ok(), facts.has_kernels && facts.driver_version >= 13000);
}

}  // namespace
}  // namespace sluice::engine
