#include "common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <future>
#include <sstream>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace sluice {
namespace {

// Kills by the kernel's out-of-memory killer on this host since boot.
int64_t OutOfMemoryKills() {
  std::ifstream in("/proc/vmstat");
  std::string key;
  int64_t value = 0;
  while (in >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return 0;
}

std::vector<std::string> MergedEnvironment(const std::vector<std::pair<std::string, std::string>>& additions) {
  std::vector<std::string> merged;
  for (const auto& [name, value] : additions) merged.push_back(absl::StrCat(name, "=", value));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool replaced =
        std::any_of(additions.begin(), additions.end(), [&](const auto& addition) { return addition.first == name; });
    if (!replaced) merged.push_back(text);
  }
  return merged;
}

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What the child needs, prepared before the fork.
struct ChildPlan {
  int log_fd = -1;
  int socket_fd = -1;  // -1: no socket
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<ResourceLimit> limits;
  bool kills_group_at_exit = false;
};

// Between fork and exec only async-signal-safe calls are allowed: other threads of the parent may have held any lock.
[[noreturn]] void RunChild(pid_t parent, const ChildPlan& plan, char* const* argv, char* const* environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before the line above took effect
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int input_fd = plan.socket_fd >= 0 ? plan.socket_fd : open("/dev/null", O_RDONLY);
  if (input_fd >= 0) dup2(input_fd, STDIN_FILENO);
  dup2(plan.socket_fd >= 0 ? plan.socket_fd : plan.log_fd, STDOUT_FILENO);
  dup2(plan.log_fd, STDERR_FILENO);
  for (const ResourceLimit& limit : plan.limits) {
    const rlimit bound = {static_cast<rlim_t>(limit.value), static_cast<rlim_t>(limit.value)};
    if (setrlimit(static_cast<__rlimit_resource>(limit.resource), &bound) != 0) _exit(127);
  }
  execve(argv[0], argv, environment);
  _exit(127);
}

}  // namespace

std::string ProcessExit::ToString() const {
  if (signal.has_value()) return absl::StrCat("signal ", *signal, " (", strsignal(*signal), ")");
  return absl::StrCat("exit code ", exit_code.value_or(-1));
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ProcessOptions& options) {
  if (options.argv.empty() || access(options.argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(options.argv.empty() ? "" : options.argv[0], " is not an executable file"));
  }
  const int log_fd = open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_fd < 0) {
    return absl::UnavailableError(absl::StrCat(options.log_path, ": cannot be opened for writing: ", strerror(errno)));
  }
  int sockets[2] = {-1, -1};
  if (options.has_socket && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    const int error = errno;
    close(log_fd);
    return absl::UnavailableError(absl::StrCat("cannot make a socket for ", options.argv[0], ": ", strerror(error)));
  }
  auto process = std::unique_ptr<ChildProcess>(new ChildProcess());
  ChildProcess* child = process.get();
  child->socket_ = sockets[0];
  if (child->socket_ >= 0) fcntl(child->socket_, F_SETFL, O_NONBLOCK);
  std::promise<int> fork_result;
  std::future<int> fork_error = fork_result.get_future();
  child->waiter_ =
      std::thread([child, result = std::move(fork_result),
                   plan = ChildPlan{log_fd, sockets[1], options.argv, MergedEnvironment(options.environment),
                                    options.limits, options.kills_group_at_exit}]() mutable {
        const int64_t kills_before = OutOfMemoryKills();
        const std::vector<char*> argv = PointersTo(plan.arguments);
        const std::vector<char*> envp = PointersTo(plan.environment);
        const pid_t parent = getpid();
        const pid_t pid = fork();
        if (pid == 0) RunChild(parent, plan, argv.data(), envp.data());
        child->pid_ = pid;
        const int error = errno;
        // Only this thread reaps the child, so its number cannot belong to another process here.
        if (pid > 0) child->exit_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
        result.set_value(pid < 0 ? error : 0);
        if (pid < 0) return;
        if (plan.kills_group_at_exit) {
          siginfo_t info;
          while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
          }
          kill(-pid, SIGKILL);  // before reaping: until then the number is the group's and nobody else's
        }
        int wait_status = 0;
        while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
        }
        ProcessExit exit;
        if (WIFSIGNALED(wait_status)) {
          exit.signal = WTERMSIG(wait_status);
          exit.out_of_memory = *exit.signal == SIGKILL && OutOfMemoryKills() > kills_before;
        } else {
          exit.exit_code = WEXITSTATUS(wait_status);
        }
        absl::MutexLock lock(&child->mutex_);
        child->exit_ = exit;
      });
  const int error = fork_error.get();
  close(log_fd);
  if (sockets[1] >= 0) close(sockets[1]);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot start ", options.argv[0], ": ", strerror(error)));
  }
  return process;
}

ChildProcess::~ChildProcess() {
  Signal(SIGKILL);
  if (waiter_.joinable()) waiter_.join();
  if (socket_ >= 0) close(socket_);
  if (exit_fd_ >= 0) close(exit_fd_);
}

std::optional<ProcessExit> ChildProcess::exit() const {
  absl::MutexLock lock(&mutex_);
  return exit_;
}

std::optional<ProcessExit> ChildProcess::WaitForExit(absl::Duration timeout) const {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(
                              +[](const std::optional<ProcessExit>* exit) { return exit->has_value(); }, &exit_),
                          timeout);
  return exit_;
}

void ChildProcess::Signal(int signal_number) {
  absl::MutexLock lock(&mutex_);
  // The process is reaped before exit_ is set, under no lock: a reused process id is possible only in that instant, and
  // a process group id is not reused while any member lives.
  if (pid_ > 0 && !exit_.has_value()) {
    if (kill(-pid_, signal_number) != 0)
      kill(pid_, signal_number);  // the group does not exist before the child's setpgid
  }
}

bool ChildProcess::Terminate(absl::Duration grace) {
  Signal(SIGTERM);
  if (WaitForExit(grace).has_value()) return false;
  Signal(SIGKILL);
  WaitForExit(absl::InfiniteDuration());
  return true;
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), X_OK) == 0) return name;
    return absl::NotFoundError(absl::StrCat(name, " is not an executable file"));
  }
  const char* path = std::getenv("PATH");
  std::stringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    struct stat status;
    if (stat(candidate.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("no program ", name, " in the folders of $PATH"));
}

std::string ReadFileTail(const std::string& path, int64_t max_bytes) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const int64_t size = in.tellg();
  const int64_t start = std::max<int64_t>(0, size - max_bytes);
  in.seekg(start);
  std::string tail(size - start, '\0');
  in.read(tail.data(), tail.size());
  tail.resize(std::max<int64_t>(0, in.gcount()));
  return tail;
}

}  // namespace sluice
