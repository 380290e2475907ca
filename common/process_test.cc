#include "common/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class ProcessTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<ChildProcess>> Shell(const std::string& script) {
    return ChildProcess::Start(
        {.argv = {"/bin/sh", "-c", script}, .environment = {{"GREETING", "hello"}}, .log_path = log_});
  }

  testing::TempDir dir_;
  std::string log_ = dir_.Join("log");
};

TEST_F(ProcessTest, ReportsExitCodeAndKeepsOutput) {
  ASSERT_OK_AND_ASSIGN(auto process, Shell("echo $GREETING; echo trouble >&2; exit 3"));
  const auto exit = process->WaitForExit(absl::Seconds(10));
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->exit_code, 3);
  EXPECT_FALSE(exit->signal.has_value());
  EXPECT_EQ(exit->ToString(), "exit code 3");
  EXPECT_EQ(Contents(log_), "hello\ntrouble\n");
}

TEST_F(ProcessTest, ReportsSignal) {
  ASSERT_OK_AND_ASSIGN(auto process, Shell("kill -SEGV $$"));
  const auto exit = process->WaitForExit(absl::Seconds(10));
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->signal, SIGSEGV);
  EXPECT_FALSE(exit->out_of_memory);
  EXPECT_THAT(exit->ToString(), HasSubstr("signal 11"));
}

TEST_F(ProcessTest, TerminateKillsWhatIgnoresTheRequest) {
  const std::string ready = dir_.Join("ready");
  ASSERT_EQ(mkfifo(ready.c_str(), 0600), 0);
  ASSERT_OK_AND_ASSIGN(auto process,
                       Shell("trap '' TERM; echo up > " + ready + "; while :; do read x < /dev/zero; done"));
  EXPECT_EQ(Contents(ready), "up\n");  // blocks until the trap is set
  EXPECT_TRUE(process->Terminate(absl::Milliseconds(50)));
  EXPECT_EQ(process->exit()->signal, SIGKILL);
}

TEST_F(ProcessTest, DestructorKillsTheWholeGroup) {
  const std::string ready = dir_.Join("ready");
  ASSERT_EQ(mkfifo(ready.c_str(), 0600), 0);
  pid_t grandchild = 0;
  int grandchild_fd = -1;
  {
    ASSERT_OK_AND_ASSIGN(auto process, Shell("sleep 1000 & echo $! > " + ready + "; wait"));
    grandchild = std::stoi(Contents(ready));
    grandchild_fd = static_cast<int>(syscall(SYS_pidfd_open, grandchild, 0));
    ASSERT_GE(grandchild_fd, 0);
    pollfd running = {grandchild_fd, POLLIN, 0};
    EXPECT_EQ(poll(&running, 1, 0), 0);
  }
  pollfd ended = {grandchild_fd, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, /*timeout_ms=*/10000), 1);  // readable once the process has ended
  close(grandchild_fd);
}

std::string ReadAll(int fd) {
  std::string text;
  while (true) {
    pollfd readable = {fd, POLLIN, 0};
    if (poll(&readable, 1, /*timeout_ms=*/10000) != 1) return text + "(nothing more in time)";
    char buffer[4096];
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

TEST_F(ProcessTest, SocketIsStandardInputAndOutputAndErrorStaysInTheLog) {
  ASSERT_OK_AND_ASSIGN(auto process,
                       ChildProcess::Start({.argv = {"/bin/sh", "-c", "read x; echo got $x; echo trouble >&2"},
                                            .environment = {},
                                            .log_path = log_,
                                            .has_socket = true}));
  ASSERT_EQ(send(process->socket(), "this\n", 5, MSG_NOSIGNAL), 5);
  EXPECT_EQ(ReadAll(process->socket()), "got this\n");
  EXPECT_EQ(process->WaitForExit(absl::Seconds(10))->exit_code, 0);
  EXPECT_EQ(Contents(log_), "trouble\n");
}

TEST_F(ProcessTest, ExitFdIsReadableOnceTheProcessHasEnded) {
  ASSERT_OK_AND_ASSIGN(
      auto process,
      ChildProcess::Start(
          {.argv = {"/bin/sh", "-c", "read x"}, .environment = {}, .log_path = log_, .has_socket = true}));
  EXPECT_EQ(ChildProcess::Start({.argv = {"/bin/true"}, .environment = {}, .log_path = log_}).value()->socket(), -1);
  pollfd ended = {process->exit_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 0), 0);
  shutdown(process->socket(), SHUT_WR);
  EXPECT_EQ(poll(&ended, 1, /*timeout_ms=*/10000), 1);
}

TEST_F(ProcessTest, LimitsHoldFromTheStart) {
  ASSERT_OK_AND_ASSIGN(auto process, ChildProcess::Start({.argv = {"/bin/sh", "-c", "ulimit -c; ulimit -n"},
                                                          .environment = {},
                                                          .log_path = log_,
                                                          .limits = {{RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 17}}}));
  ASSERT_TRUE(process->WaitForExit(absl::Seconds(10)).has_value());
  EXPECT_EQ(Contents(log_), "0\n17\n");
}

TEST_F(ProcessTest, TheGroupDiesWithItsFirstProcessWhereAskedTo) {
  const std::string ready = dir_.Join("ready");
  ASSERT_EQ(mkfifo(ready.c_str(), 0600), 0);
  ASSERT_OK_AND_ASSIGN(auto process,
                       ChildProcess::Start({.argv = {"/bin/sh", "-c", "sleep 1000 & echo $! > " + ready + "; read x"},
                                            .environment = {},
                                            .log_path = log_,
                                            .has_socket = true,
                                            .kills_group_at_exit = true}));
  const int grandchild = static_cast<int>(syscall(SYS_pidfd_open, std::stoi(Contents(ready)), 0));
  ASSERT_GE(grandchild, 0);
  pollfd ended = {grandchild, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 0), 0);
  shutdown(process->socket(), SHUT_WR);  // ends the shell
  EXPECT_EQ(poll(&ended, 1, /*timeout_ms=*/10000), 1);
  close(grandchild);
}

TEST_F(ProcessTest, FindsPrograms) {
  ASSERT_OK_AND_ASSIGN(const std::string shell, FindProgram("sh"));
  EXPECT_EQ(access(shell.c_str(), X_OK), 0);
  EXPECT_THAT(FindProgram("/bin/sh"), ::sluice::testing::IsOk());
  EXPECT_THAT(FindProgram("no-such-program"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no-such-program")));
  EXPECT_THAT(FindProgram(dir_.Write("text", "")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("executable")));
}

TEST_F(ProcessTest, RefusesWhatCannotRun) {
  EXPECT_THAT(ChildProcess::Start({.argv = {dir_.Join("absent")}, .environment = {}, .log_path = log_}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent is not an executable file")));
  EXPECT_THAT(
      ChildProcess::Start({.argv = {"/bin/true"}, .environment = {}, .log_path = dir_.Join("no/such/folder/log")}),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no/such/folder/log")));
}

TEST_F(ProcessTest, ReadsTheTailOfAFile) {
  const std::string path = dir_.Write("file", "0123456789");
  EXPECT_EQ(ReadFileTail(path, 4), "6789");
  EXPECT_EQ(ReadFileTail(path, 100), "0123456789");
  EXPECT_EQ(ReadFileTail(dir_.Join("absent"), 4), "");
}

}  // namespace
}  // namespace sluice
