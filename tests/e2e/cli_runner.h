// Runs the real programs as a user would, and keeps what they print.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sluice::testing {

struct CommandResult {
  int exit_code = -1;  // 128 + signal where a signal ended it
  std::string output;  // standard output
  std::string errors;  // standard error
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// The folder with `sluice` and its daemons: build/bin beside the tests.
std::string BinaryFolder();

// Runs BinaryFolder()/program to its end. Dies if it cannot be started.
CommandResult RunProgram(const std::string& program, const std::vector<std::string>& arguments,
                         const Environment& environment = {});

inline CommandResult RunSluice(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  return RunProgram("sluice", arguments, environment);
}

// A daemon in the background; killed at the end.
class Daemon {
 public:
  Daemon(const std::string& program, const std::vector<std::string>& arguments, const std::string& log_path);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  void Signal(int signal_number);
  // Waits for its end; the exit code as in CommandResult.
  int Wait();
  int pid() const { return pid_; }

 private:
  int pid_ = -1;
};

}  // namespace sluice::testing
