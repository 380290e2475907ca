#include "tests/e2e/cli_runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace sluice::testing {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

int StartProgram(const std::string& program, const std::vector<std::string>& arguments, const Environment& environment,
                 int out, int error) {
  std::vector<std::string> argv = {BinaryFolder() + "/" + program};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out, STDOUT_FILENO);
    dup2(error, STDERR_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execv(argv[0].c_str(), Pointers(argv).data());
    perror(argv[0].c_str());
    _exit(127);
  }
  if (pid < 0) {
    perror("fork");
    abort();
  }
  return pid;
}

int WaitFor(int pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::string BinaryFolder() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin").string();
}

CommandResult RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                         const Environment& environment) {
  int out[2];
  int error[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
    perror("pipe2");
    abort();
  }
  const int pid = StartProgram(program, arguments, environment, out[1], error[1]);
  close(out[1]);
  close(error[1]);
  CommandResult result;
  std::string* const texts[] = {&result.output, &result.errors};
  pollfd pipes[] = {{out[0], POLLIN, 0}, {error[0], POLLIN, 0}};
  for (int open = 2; open > 0;) {
    poll(pipes, 2, -1);
    for (int i = 0; i < 2; ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t bytes = read(pipes[i].fd, buffer, sizeof(buffer));
      if (bytes > 0) {
        texts[i]->append(buffer, bytes);
      } else {
        close(pipes[i].fd);
        pipes[i].fd = -1;
        --open;
      }
    }
  }
  result.exit_code = WaitFor(pid);
  return result;
}

Daemon::Daemon(const std::string& program, const std::vector<std::string>& arguments, const std::string& log_path) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  pid_ = StartProgram(program, arguments, {}, log, log);
  close(log);
}

Daemon::~Daemon() {
  Signal(SIGKILL);
  Wait();
}

void Daemon::Signal(int signal_number) {
  if (pid_ > 0) kill(pid_, signal_number);
}

int Daemon::Wait() {
  if (pid_ <= 0) return 0;
  const int exit_code = WaitFor(pid_);
  pid_ = -1;
  return exit_code;
}

}  // namespace sluice::testing
