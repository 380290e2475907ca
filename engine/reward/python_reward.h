// A reward that the user wrote in Python, in a pool of supervised processes.
//
//   def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
//       return 1.0                               # or {"score": 1.0, "anything": 0.5}; may be `async def`
//
// Each process imports the file once and scores one request at a time; the calls have keyword arguments by the names
// above, ground_truth as text, extra_info as a dict or None, and the configured kwargs. A bool is 0 or 1, a NumPy or
// torch scalar a number. Further keys of a dict become metrics where they are numbers; others are left out.
//
// What goes wrong is named: an exception is kRaised with the last lines of its traceback, exit and signals are kCrashed
// with the last lines of the process's standard error, more than `timeout` (or as much CPU time, eightfold) is kTimeout
// and the process with all it started is killed; NaN, infinity, and any other type are kBadValue. A process that is
// gone is replaced by a fresh one; only the request that it worked on has the error. Prints of the user's code go to
// the process's log, and cannot be mistaken for an answer.
//
// Limits of each process: address space, size of a file it writes, CPU time, no core files. It has a process group of
// its own that dies with it, and it dies with this process. It has standard input closed, PYTHONHASHSEED=0 so that the
// order of sets does not change from run to run, and one OpenMP thread. This is against mistakes, not against malice:
// the code runs with the job's rights, and what it moves to a session of its own is not found again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/reward/reward.h"

namespace sluice::engine {

struct PythonRewardOptions {
  std::string file;                                  // the user's .py file
  std::string function = "compute_score";            // a name in it
  std::string kwargs_json = "{}";                    // a JSON object: further keyword arguments of each call
  std::string python;                                // the interpreter; empty: python3 of $PATH
  int workers = 2;                                   // processes
  absl::Duration timeout = absl::Seconds(10);        // of one call
  absl::Duration start_timeout = absl::Seconds(60);  // of starting a process and importing the file
  int64_t memory_bytes = int64_t{8} << 30;           // address space of a process
  int64_t file_bytes = int64_t{64} << 20;            // of a file it writes, its log among them
};

// Starts the processes and waits until all of them have imported the file. kInvalidArgument: the import failed (with
// the last lines of its traceback), there is no such function, kwargs_json is no object, an option is out of range.
// NotFound: no such file or interpreter. DeadlineExceeded: the import took longer than start_timeout.
// Score of the result takes one call at a time; others wait. Time is the machine's monotonic clock.
absl::StatusOr<std::unique_ptr<Reward>> StartPythonReward(const PythonRewardOptions& options);

}  // namespace sluice::engine
