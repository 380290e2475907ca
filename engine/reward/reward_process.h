// One Python process that scores responses, and the lines that go to it and come from it. Not thread-safe.
//
// Nothing here blocks but the start of the process: the owner polls socket() and exit_fd() and calls Pump.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process.h"

namespace sluice::engine {

struct RewardProcessOptions {
  std::string python;    // path of the interpreter
  std::string log_path;  // of standard error and the user's prints; emptied at the start
  int64_t memory_bytes = 0;
  int64_t file_bytes = 0;
};

class RewardProcess {
 public:
  // NotFound, Unavailable: as ChildProcess::Start.
  static absl::StatusOr<std::unique_ptr<RewardProcess>> Start(const RewardProcessOptions& options);

  // Kills the process with its group: destroy the object. No second way, so that none is left behind.

  int socket() const { return process_->socket(); }
  int exit_fd() const { return process_->exit_fd(); }
  // There is something that the socket did not take yet.
  bool has_unsent() const { return !unsent_.empty(); }

  // Sends `line` and a line end, later as far as it must wait.
  void Send(const std::string& line);
  // Moves what can be moved now, both ways. After it every line must be taken before the owner polls again.
  void Pump();
  // The next whole line that came.
  std::optional<std::string> TakeLine();

  // It has ended, or closed the connection, or sent a line longer than 1 MiB: no more lines will come once those that
  // are here are taken.
  bool IsLost() const;
  // What is known of the end, with the last lines of the log. REQUIRES: IsLost().
  std::string WhyLost() const;
  // It was ended for using more CPU time than it may.
  bool UsedTooMuchCpu() const;

 private:
  RewardProcess(std::unique_ptr<ChildProcess> process, std::string log_path);
  void SendWhatFits();
  bool HasEnded() const;
  // How it ended; nothing where it lives on without a connection.
  std::optional<ProcessExit> AwaitExit() const;

  std::unique_ptr<ChildProcess> process_;
  const std::string log_path_;
  std::string unsent_;
  std::string received_;
  bool is_closed_ = false;
  bool line_is_too_long_ = false;
};

}  // namespace sluice::engine
