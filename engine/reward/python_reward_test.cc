#include "engine/reward/python_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/reward/reward_factory.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class PythonRewardTest : public ::testing::Test {
 protected:
  // One process, so that what one request does to it is seen by the next.
  absl::StatusOr<std::unique_ptr<Reward>> Start(const std::string& source) {
    options_.file = dir_.Write("my_reward.py", source);
    return StartPythonReward(options_);
  }

  static std::vector<RewardRequest> Solutions(const std::vector<std::string>& solutions) {
    std::vector<RewardRequest> requests;
    for (const std::string& solution : solutions) requests.push_back({.solution = solution});
    return requests;
  }

  testing::TempDir dir_;
  PythonRewardOptions options_ = {.workers = 1};
};

TEST_F(PythonRewardTest, GivesTheFunctionWhatTheRowHolds) {
  dir_.Write("helper.py", "BONUS = 0.5\n");
  options_.kwargs_json = R"({"scale": 2, "name": "x"})";
  options_.function = "judge";
  ASSERT_OK_AND_ASSIGN(const auto reward, Start(R"(
import helper

def judge(data_source, solution_str, ground_truth, extra_info, scale, **kwargs):
    assert data_source == "mine" and kwargs == {"name": "x"}, (data_source, kwargs)
    assert extra_info is None or extra_info == {"index": 7, "more": ["é", None]}, extra_info
    return {"score": scale * (solution_str == ground_truth) + helper.BONUS, "length": len(solution_str), "right": solution_str == ground_truth,
            "text": "left out", "list": [1]}
)"));
  const RewardRequest requests[] = {{.data_source = "mine",
                                     .solution = "dé\n",
                                     .ground_truth = "dé\n",
                                     .extra_info_json = R"({"index": 7, "more": ["é", null]})"},
                                    {.data_source = "mine", .solution = "\xff", .ground_truth = "a"}};
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(requests));
  EXPECT_EQ(results[0].score, 2.5) << results[0].message;
  EXPECT_THAT(results[0].metrics, UnorderedElementsAre(Pair("length", 3), Pair("right", 1)));
  EXPECT_EQ(results[1].score, 0.5) << results[1].message;
  EXPECT_EQ(results[1].metrics.at("length"), 1);
}

TEST_F(PythonRewardTest, KeepsTheOrderWhateverFinishesFirst) {
  options_.workers = 3;
  ASSERT_OK_AND_ASSIGN(const auto reward, Start(R"(
import asyncio

async def compute_score(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(0.03 if int(solution_str) % 3 == 0 else 0)
    return int(solution_str)
)"));
  std::vector<RewardRequest> requests;
  for (int i = 0; i < 20; ++i) requests.push_back({.solution = absl::StrCat(i)});
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(requests));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(results[i].score, i) << results[i].message;
  ASSERT_OK_AND_ASSIGN(const auto none, reward->Score({}));
  EXPECT_TRUE(none.empty());
}

// An answer that is there before the next wait must be noticed: a wake-up that is missed would last until the deadline.
TEST_F(PythonRewardTest, AnswersAtOnceAreNoticed) {
  options_.workers = 2;
  options_.timeout = absl::Hours(1);
  ASSERT_OK_AND_ASSIGN(const auto reward, Start("def compute_score(**kwargs): return 1\n"));
  for (int call = 0; call < 3; ++call) {
    ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(std::vector<RewardRequest>(300)));
    for (const RewardResult& result : results) EXPECT_EQ(result.score, 1) << result.message;
  }
}

// Everything that can go wrong with one response: named, counted apart, and the next one is judged as ever.
TEST_F(PythonRewardTest, NamesWhatGoesWrong) {
  options_.timeout = absl::Milliseconds(1500);  // far more than the others take, also on a busy machine
  ASSERT_OK_AND_ASSIGN(const auto reward, Start(R"(
import ctypes, os, signal, sys

class Array:  # as NumPy's with several numbers
    def __float__(self): raise TypeError("only length-1 arrays can be converted")

def compute_score(data_source, solution_str, ground_truth, extra_info):
    if solution_str == "raise": raise ValueError("the reason")
    if solution_str == "hang":
        while True: pass
    if solution_str == "exit": sys.exit(3)
    if solution_str == "end": os._exit(0)
    if solution_str == "crash": ctypes.string_at(0)
    if solution_str == "close":
        os.closerange(3, 100)
        while True: pass
    if solution_str == "nan": return float("nan")
    if solution_str == "inf": return {"score": float("-inf")}
    if solution_str == "text": return "1.0"
    if solution_str == "none": return None
    if solution_str == "no score": return {"points": 1}
    if solution_str == "nan metric": return {"score": 1, "x": float("nan")}
    if solution_str == "list": return [1]
    if solution_str == "huge int": return 10 ** 400
    if solution_str == "many": return {"score": 1, **{str(i): i for i in range(1000)}}
    if solution_str == "stop": raise KeyboardInterrupt
    if solution_str == "cpu": os.kill(os.getpid(), signal.SIGXCPU)
    if solution_str == "array": return Array()
    if solution_str == "array metric": return {"score": 1, "x": Array()}
    return 1
)"));
  struct Case {
    const char* solution;
    RewardError error;
    const char* message;
  };
  const Case cases[] = {{"raise", RewardError::kRaised, "ValueError: the reason"},
                        {"fine", RewardError::kNone, ""},
                        {"hang", RewardError::kTimeout, "no answer within 1.5s"},
                        {"exit", RewardError::kCrashed, "exit code 3"},
                        {"end", RewardError::kCrashed, "exit code 0"},
                        {"fine", RewardError::kNone, ""},
                        {"crash", RewardError::kCrashed, "signal 11"},
                        {"close", RewardError::kCrashed, "closed its connection"},
                        {"stop", RewardError::kCrashed, "KeyboardInterrupt"},
                        {"nan", RewardError::kBadValue, "the score is nan"},
                        {"inf", RewardError::kBadValue, "-inf"},
                        {"text", RewardError::kBadValue, "type str"},
                        {"none", RewardError::kBadValue, "NoneType"},
                        {"no score", RewardError::kBadValue, "['points']"},
                        {"nan metric", RewardError::kBadValue, "\"x\" is nan"},
                        {"list", RewardError::kBadValue, "type list"},
                        {"huge int", RewardError::kBadValue, "int"},
                        {"many", RewardError::kBadValue, "1000 numbers"},
                        {"cpu", RewardError::kTimeout, "signal 24"},
                        {"array", RewardError::kBadValue, "only length-1 arrays"},
                        {"array metric", RewardError::kNone, ""},
                        {"fine", RewardError::kNone, ""}};
  std::vector<RewardRequest> requests;
  for (const Case& c : cases) requests.push_back({.solution = c.solution});
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(requests));
  for (size_t i = 0; i < std::size(cases); ++i) {
    SCOPED_TRACE(cases[i].solution);
    EXPECT_EQ(RewardErrorName(results[i].error), RewardErrorName(cases[i].error)) << results[i].message;
    EXPECT_EQ(results[i].score.has_value(), cases[i].error == RewardError::kNone);
    EXPECT_THAT(results[i].message, HasSubstr(cases[i].message));
  }
  EXPECT_THAT(results[0].message, HasSubstr("in compute_score"));
  const RewardErrorCounts counts = CountErrors(results);
  EXPECT_EQ(counts[static_cast<int>(RewardError::kNone)], 4);
  EXPECT_EQ(counts[static_cast<int>(RewardError::kTimeout)], 2);
  EXPECT_EQ(counts[static_cast<int>(RewardError::kCrashed)], 5);
  EXPECT_EQ(counts[static_cast<int>(RewardError::kRaised)], 1);
  EXPECT_EQ(counts[static_cast<int>(RewardError::kBadValue)], 10);
}

TEST_F(PythonRewardTest, PrintsCannotBeMistakenForAnswers) {
  ASSERT_OK_AND_ASSIGN(const auto reward, Start(R"(
import os, subprocess, sys

print('{"ready": true}')

def compute_score(data_source, solution_str, ground_truth, extra_info):
    print('{"id": 0, "score": 99, "metrics": {}}', flush=True)
    os.write(1, b'{"id": 0, "score": 98, "metrics": {}}\n')
    sys.stderr.write("more\n")
    subprocess.run(["sh", "-c", "echo '{\"id\": 0, \"score\": 97}'; cat"], check=True)  # standard input is at its end
    return len(sys.stdin.read())
)"));
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(Solutions({"a", "b"})));
  EXPECT_EQ(results[0].score, 0) << results[0].message;
  EXPECT_EQ(results[1].score, 0) << results[1].message;
}

TEST_F(PythonRewardTest, HugeOutputIsBounded) {
  options_.file_bytes = 2 << 20;
  ASSERT_OK_AND_ASSIGN(const auto reward, Start(R"(
def compute_score(data_source, solution_str, ground_truth, extra_info):
    if solution_str == "print":
        for _ in range(1000): print("x" * 100000)
    if solution_str == "raise": raise ValueError("y" * 50_000_000)
    if solution_str == "memory": return len(bytearray(1 << 40))
    return 1
)"));
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(Solutions({"print", "fine", "raise", "memory", "fine"})));
  EXPECT_EQ(results[0].error, RewardError::kRaised);
  EXPECT_THAT(results[0].message, HasSubstr("File too large"));
  EXPECT_EQ(results[1].score, 1) << results[1].message;
  EXPECT_EQ(results[2].error, RewardError::kRaised);
  EXPECT_THAT(results[2].message, HasSubstr("ValueError: yyy"));
  EXPECT_LT(results[2].message.size(), 5000u);
  EXPECT_EQ(results[3].error, RewardError::kRaised);
  EXPECT_THAT(results[3].message, HasSubstr("MemoryError"));
  EXPECT_EQ(results[4].score, 1) << results[4].message;
}

// The function's own processes: one that comes back through the runner, and one that outlives its parent.
TEST_F(PythonRewardTest, WhatItForksDoesNotAnswerAndDoesNotOutliveIt) {
  options_.timeout = absl::Seconds(5);
  const std::string pid_file = dir_.Join("pid");
  options_.kwargs_json = absl::StrCat("{\"pid_file\": \"", pid_file, "\"}");
  ASSERT_OK_AND_ASSIGN(const auto reward, Start(R"(
import os, time

def compute_score(data_source, solution_str, ground_truth, extra_info, pid_file):
    if solution_str == "fork":
        return 1 if os.fork() else 2
    if solution_str == "fork and raise":
        if os.fork() == 0: raise ValueError("child")
        return 3
    if solution_str == "leave":
        pid = os.fork()
        if pid == 0: time.sleep(1000)
        with open(pid_file, "w") as file: file.write(str(pid))
        os._exit(4)
    return 5
)"));
  ASSERT_OK_AND_ASSIGN(const auto first, reward->Score(Solutions({"fork", "fork and raise", "x"})));
  EXPECT_EQ(first[0].score, 1) << first[0].message;
  EXPECT_EQ(first[1].score, 3) << first[1].message;
  EXPECT_EQ(first[2].score, 5) << first[2].message;

  ASSERT_OK_AND_ASSIGN(const auto second, reward->Score(Solutions({"leave", "x"})));
  EXPECT_EQ(second[0].error, RewardError::kCrashed);
  EXPECT_THAT(second[0].message, HasSubstr("exit code 4"));
  EXPECT_EQ(second[1].score, 5) << second[1].message;
  pid_t left = 0;
  std::ifstream(pid_file) >> left;
  ASSERT_GT(left, 0);
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, left, 0));
  if (fd >= 0) {  // else it is gone already
    pollfd ended = {fd, POLLIN, 0};
    EXPECT_EQ(poll(&ended, 1, /*timeout_ms=*/10000), 1);
    close(fd);
  }
}

// A process that ends while it has nothing to do costs no request.
TEST_F(PythonRewardTest, OneThatEndsBetweenCallsIsReplaced) {
  const std::string gone = dir_.Join("gone");
  options_.kwargs_json = absl::StrCat("{\"gone\": \"", gone, "\"}");
  ASSERT_OK_AND_ASSIGN(const auto reward, Start(R"(
import os, threading

def end(gone):
    while not os.path.exists(gone): pass
    os._exit(1)

def compute_score(data_source, solution_str, ground_truth, extra_info, gone):
    if solution_str == "end later": threading.Thread(target=end, args=(gone,), daemon=True).start()
    return os.getpid()
)"));
  ASSERT_OK_AND_ASSIGN(const auto first, reward->Score(Solutions({"end later"})));
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(*first[0].score), 0));
  ASSERT_GE(fd, 0);
  dir_.Write("gone", "");
  pollfd ended = {fd, POLLIN, 0};
  ASSERT_EQ(poll(&ended, 1, /*timeout_ms=*/10000), 1);
  close(fd);
  ASSERT_OK_AND_ASSIGN(const auto second, reward->Score(Solutions({"x"})));
  ASSERT_TRUE(second[0].score.has_value()) << second[0].message;
  EXPECT_NE(second[0].score, first[0].score);
}

TEST_F(PythonRewardTest, AFileThatCannotBeImportedIsRefusedBeforeAnything) {
  EXPECT_THAT(Start("import no_such_module\n"),
              StatusIs(kInvalid, AllOf(HasSubstr("my_reward.py: cannot be imported"), HasSubstr("no_such_module"))));
  EXPECT_THAT(Start("def compute_score(:\n"), StatusIs(kInvalid, HasSubstr("SyntaxError")));
  EXPECT_THAT(Start("def score(): pass\nclass A: pass\n"),
              StatusIs(kInvalid, AllOf(HasSubstr("no function compute_score"), HasSubstr("it has score"))));
  EXPECT_THAT(Start("raise SystemExit(4)\n"), StatusIs(kInvalid, HasSubstr("SystemExit: 4")));
  EXPECT_THAT(
      Start("import os\nprint('so far', flush=True)\nos._exit(7)\n"),
      StatusIs(kInvalid, AllOf(HasSubstr("while it was imported"), HasSubstr("exit code 7"), HasSubstr("so far"))));
  options_.start_timeout = absl::Milliseconds(300);
  EXPECT_THAT(Start("while True: pass\n"), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("300ms")));
}

// The file changes under a running job: what cannot be started any more is said, and nothing hangs.
TEST_F(PythonRewardTest, WhenNoProcessCanBeStartedTheRestIsUnavailable) {
  ASSERT_OK_AND_ASSIGN(const auto reward, Start("import os\ndef compute_score(**kwargs): os._exit(1)\n"));
  dir_.Write("my_reward.py", "broken(\n");
  ASSERT_OK_AND_ASSIGN(const auto results, reward->Score(Solutions({"a", "b", "c"})));
  EXPECT_EQ(results[0].error, RewardError::kCrashed);
  EXPECT_EQ(results[1].error, RewardError::kUnavailable);
  EXPECT_EQ(results[2].error, RewardError::kUnavailable);
  EXPECT_THAT(results[2].message, HasSubstr("SyntaxError"));
  dir_.Write("my_reward.py", "def compute_score(**kwargs): return 1\n");
  ASSERT_OK_AND_ASSIGN(const auto repaired, reward->Score(Solutions({"a"})));
  EXPECT_EQ(repaired[0].score, 1) << repaired[0].message;
}

TEST_F(PythonRewardTest, OptionsAreChecked) {
  EXPECT_THAT(StartPythonReward({.file = dir_.Join("absent.py")}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent.py")));
  const std::string file = dir_.Write("r.py", "def compute_score(**kwargs): return 1\n");
  EXPECT_THAT(StartPythonReward({.file = file, .python = "no-such-python"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("python: no program no-such-python")));
  EXPECT_THAT(StartPythonReward({.file = file, .workers = 0}), StatusIs(kInvalid, HasSubstr("workers: is 0")));
  EXPECT_THAT(StartPythonReward({.file = file, .kwargs_json = "[]"}), StatusIs(kInvalid, HasSubstr("kwargs")));
  ASSERT_OK_AND_ASSIGN(
      const auto made,
      MakeReward(std::vector<RewardSpec>{{.kind = "python", .weight = 3, .options = {{"path", file}}}}));
  ASSERT_OK_AND_ASSIGN(const auto results, made->Score(Solutions({"a"})));
  EXPECT_EQ(results[0].score, 3);
}

}  // namespace
}  // namespace sluice::engine
