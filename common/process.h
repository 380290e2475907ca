// A supervised child process: it dies with us, its output goes to a file, and how it ended is known.
//
// The child runs in a process group of its own and gets SIGKILL when this process ends for whatever reason. That signal
// is tied to the thread that forked, so each ChildProcess has a thread that forks, waits and lives as long as the
// child. Thread-safe: all methods may be called from any thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sluice {

struct ProcessOptions {
  std::vector<std::string> argv;                                 // argv[0] is the path of the program
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::string log_path;                                          // standard output and error are appended here
};

// How a process ended: exactly one of the two is set.
struct ProcessExit {
  std::optional<int> exit_code;
  std::optional<int> signal;
  // The kernel's out-of-memory killer was at work on this host while the process lived, and SIGKILL ended it.
  bool out_of_memory = false;

  // "exit code 3", "signal 11 (Segmentation fault)".
  std::string ToString() const;
};

class ChildProcess {
 public:
  // Starts the program. NotFound: argv[0] is not an executable file. Unavailable: fork failed or the log cannot be
  // opened.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ProcessOptions& options);

  // Kills the process group if it still runs, and waits for it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // How it ended, or nothing while it runs.
  std::optional<ProcessExit> exit() const;

  // Waits for the end, at most `timeout`.
  std::optional<ProcessExit> WaitForExit(absl::Duration timeout) const;

  // Sends a signal to the process group; nothing happens once the process has ended.
  void Signal(int signal_number);

  // SIGTERM, then SIGKILL after `grace`. Returns once the process is gone; true if it had to be killed.
  bool Terminate(absl::Duration grace);

 private:
  ChildProcess() = default;

  pid_t pid_ = -1;  // set before Start returns
  std::thread waiter_;
  mutable absl::Mutex mutex_;
  std::optional<ProcessExit> exit_ ABSL_GUARDED_BY(mutex_);
};

// The last `max_bytes` of a file; empty where there is none.
std::string ReadFileTail(const std::string& path, int64_t max_bytes);

}  // namespace sluice
