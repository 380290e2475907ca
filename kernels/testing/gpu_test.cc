// Linked into every kernel test: says so where the tests on the GPU have nothing to run on.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/testing/tensors.h"

namespace sluice::kernels {
namespace {

TEST(KernelTests, cuda_has_a_device) {
  const auto backends = testing::AvailableBackends();
  if (std::find(backends.begin(), backends.end(), testing::Backend::kCuda) == backends.end()) {
    GTEST_SKIP() << "no GPU on this machine: the tests on it were not run";
  }
}

}  // namespace
}  // namespace sluice::kernels
