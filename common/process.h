// A supervised child process: it dies with us, its output goes to a file, and how it ended is known.
//
// The child runs in a process group of its own and gets SIGKILL when this process ends for whatever reason. That signal
// is tied to the thread that forked, so each ChildProcess has a thread that forks, waits and lives as long as the
// child. Thread-safe: all methods may be called from any thread; the socket is the caller's to share.
#pragma once

#include <sys/types.h>

#include <cstdint>
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

// A bound as setrlimit takes it, soft and hard.
struct ResourceLimit {
  int resource;  // RLIMIT_AS and its kin
  uint64_t value;
};

struct ProcessOptions {
  std::vector<std::string> argv;                                 // argv[0] is the path of the program
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::string log_path;                                          // standard output and error are appended here
  // Standard input and output are one stream socket, whose other end is socket(). Standard error goes to the log.
  bool has_socket = false;
  std::vector<ResourceLimit> limits = {};
  // When the process ends, what it started and left in its process group gets SIGKILL.
  bool kills_group_at_exit = false;
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

  // Our end of the socket, not blocking; -1 without ProcessOptions::has_socket. Valid as long as the object.
  int socket() const { return socket_; }

  // For poll: readable once the process has ended; exit() has the answer in that instant or the next. Valid as long as
  // the object.
  int exit_fd() const { return exit_fd_; }

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

  pid_t pid_ = -1;  // set before Start returns, as all that has no lock
  int socket_ = -1;
  int exit_fd_ = -1;
  std::thread waiter_;
  mutable absl::Mutex mutex_;
  std::optional<ProcessExit> exit_ ABSL_GUARDED_BY(mutex_);
};

// The path of a program: `name` itself where it has a slash, else the first executable file of that name in the folders
// of $PATH. NotFound names it.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// The last `max_bytes` of a file; empty where there is none.
std::string ReadFileTail(const std::string& path, int64_t max_bytes);

}  // namespace sluice
