#include "engine/reward/reward_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace sluice {
std::string_view PythonRunnerSource();  // python_runner.py, embedded when the program is built
}

namespace sluice::engine {
namespace {

constexpr size_t kLongestLine = size_t{1} << 20;
constexpr int64_t kLogTail = 1500;
// A process that ends closes the connection first and is gone a moment later; one that only closes it lives on.
constexpr absl::Duration kExitWait = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<RewardProcess>> RewardProcess::Start(const RewardProcessOptions& options) {
  unlink(options.log_path.c_str());
  ASSIGN_OR_RETURN(
      std::unique_ptr<ChildProcess> process,
      ChildProcess::Start({.argv = {options.python, "-X", "faulthandler", "-c", std::string(PythonRunnerSource())},
                           .environment = {{"PYTHONHASHSEED", "0"}, {"OMP_NUM_THREADS", "1"}},
                           .log_path = options.log_path,
                           .has_socket = true,
                           .limits = {{RLIMIT_CORE, 0},
                                      {RLIMIT_AS, static_cast<uint64_t>(options.memory_bytes)},
                                      {RLIMIT_FSIZE, static_cast<uint64_t>(options.file_bytes)}},
                           .kills_group_at_exit = true}));
  return std::unique_ptr<RewardProcess>(new RewardProcess(std::move(process), options.log_path));
}

RewardProcess::RewardProcess(std::unique_ptr<ChildProcess> process, std::string log_path)
    : process_(std::move(process)), log_path_(std::move(log_path)) {}

void RewardProcess::Send(const std::string& line) {
  absl::StrAppend(&unsent_, line, "\n");
  // Only sends: an answer read here would be one that the owner's poll waits for.
  SendWhatFits();
}

void RewardProcess::SendWhatFits() {
  while (!unsent_.empty() && !is_closed_) {
    const ssize_t sent = send(socket(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      unsent_.erase(0, static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      unsent_.clear();  // nobody reads any more; what came before is still to be taken
    }
  }
}

void RewardProcess::Pump() {
  SendWhatFits();
  char buffer[65536];
  while (!is_closed_ && !line_is_too_long_) {
    const ssize_t count = recv(socket(), buffer, sizeof(buffer), 0);
    if (count > 0) {
      received_.append(buffer, static_cast<size_t>(count));
      line_is_too_long_ = received_.size() > kLongestLine && received_.find('\n') == std::string::npos;
    } else if (count < 0 && errno == EAGAIN) {
      break;
    } else if (count == 0 || errno != EINTR) {
      is_closed_ = true;
    }
  }
}

std::optional<std::string> RewardProcess::TakeLine() {
  const size_t end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

bool RewardProcess::HasEnded() const {
  pollfd ended = {exit_fd(), POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

bool RewardProcess::IsLost() const { return is_closed_ || line_is_too_long_ || HasEnded(); }

std::optional<ProcessExit> RewardProcess::AwaitExit() const {
  if (is_closed_ || HasEnded()) return process_->WaitForExit(kExitWait);
  return std::nullopt;
}

bool RewardProcess::UsedTooMuchCpu() const {
  const std::optional<ProcessExit> exit = AwaitExit();
  return exit.has_value() && exit->signal == SIGXCPU;
}

std::string RewardProcess::WhyLost() const {
  if (line_is_too_long_) return "the process sent an answer that has no end";
  const std::optional<ProcessExit> exit = AwaitExit();
  std::string why = exit.has_value() ? absl::StrCat("the process ended with ", exit->ToString(),
                                                    exit->out_of_memory ? " (out of memory)" : "")
                                     : "the process closed its connection";
  const std::string tail = ReadFileTail(log_path_, kLogTail);
  if (!tail.empty()) absl::StrAppend(&why, "; its last output:\n", tail);
  return why;
}

}  // namespace sluice::engine
