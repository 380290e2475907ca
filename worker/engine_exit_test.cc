#include "worker/engine_exit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* name;
  ProcessExit exit;
  std::string output;
  v1::FailureReason reason;
  const char* message;
};

class EngineExitTest : public ::testing::TestWithParam<Case> {};

TEST_P(EngineExitTest, NamesTheCause) {
  const v1::Failure failure = FailureOfExit(3, GetParam().exit, GetParam().output);
  EXPECT_EQ(failure.reason(), GetParam().reason);
  EXPECT_THAT(failure.message(), HasSubstr("engine of rank 3 ended with"));
  EXPECT_THAT(failure.message(), HasSubstr(GetParam().message));
  EXPECT_EQ(failure.rank(), 3);
  EXPECT_EQ(failure.has_exit_code(), GetParam().exit.exit_code.has_value());
  EXPECT_EQ(failure.has_signal(), GetParam().exit.signal.has_value());
}

INSTANTIATE_TEST_SUITE_P(
    Exits, EngineExitTest,
    ::testing::Values(Case{"Crash",
                           {.signal = SIGSEGV},
                           "loading\nstep 3\n\n",
                           v1::FAILURE_REASON_ENGINE_CRASHED,
                           "its last line was: step 3"},
                      Case{"Code", {.exit_code = 7}, "", v1::FAILURE_REASON_ENGINE_CRASHED, "exit code 7"},
                      Case{"Killed", {.signal = SIGKILL}, "x", v1::FAILURE_REASON_ENGINE_CRASHED, "signal 9"},
                      Case{"KernelOom",
                           {.signal = SIGKILL, .out_of_memory = true},
                           "x",
                           v1::FAILURE_REASON_OUT_OF_MEMORY,
                           "max_token_len_per_gpu"},
                      Case{"BadAlloc",
                           {.signal = SIGABRT},
                           "what():  std::bad_alloc\n",
                           v1::FAILURE_REASON_OUT_OF_MEMORY,
                           "memory ran out"}),
    [](const auto& info) { return info.param.name; });

TEST(EngineExitTest, SilenceSaysHowLongAndWhatTheProcessDid) {
  const v1::Failure stopped = FailureOfSilence(3, absl::Seconds(8), 'T', "step 7\n");
  EXPECT_EQ(stopped.reason(), v1::FAILURE_REASON_ENGINE_CRASHED);
  EXPECT_EQ(stopped.rank(), 3);
  EXPECT_EQ(
      stopped.message(),
      "engine of rank 3 answered nothing for 8s (its process is stopped (a SIGSTOP or a debugger)) and was killed; "
      "its last line was: step 7");
  EXPECT_THAT(FailureOfSilence(0, absl::Seconds(8), 'D', "").message(), HasSubstr("cannot be interrupted"));
  EXPECT_THAT(FailureOfSilence(0, absl::Seconds(8), 'R', "").message(), HasSubstr("in state R"));
}

TEST(EngineExitTest, KeepsTheEndOfLongOutput) {
  const v1::Failure failure = FailureOfExit(0, {.exit_code = 1}, std::string(100000, 'a') + "\nthe end");
  EXPECT_EQ(failure.stderr_tail().size(), 64u * 1024);
  EXPECT_THAT(failure.message(), HasSubstr("the end"));
}

}  // namespace
}  // namespace sluice::worker
