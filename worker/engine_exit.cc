#include "worker/engine_exit.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sluice::worker {
namespace {

// What the C++ library and the CUDA runtime print when an allocation fails and nobody caught it.
constexpr const char* kOutOfMemoryMarks[] = {"std::bad_alloc", "CUDA out of memory",
                                             "DefaultCPUAllocator: can't allocate memory"};

void SetTail(const std::string& stderr_tail, v1::Failure* failure) {
  const size_t kept = std::min<size_t>(stderr_tail.size(), kStderrTailBytes);
  failure->set_stderr_tail(stderr_tail.substr(stderr_tail.size() - kept));
}

std::string WithLastLine(const std::string& message, const v1::Failure& failure) {
  const std::vector<std::string> lines = absl::StrSplit(failure.stderr_tail(), '\n', absl::SkipWhitespace());
  return lines.empty() ? message : absl::StrCat(message, "; its last line was: ", lines.back());
}

std::string Meaning(char process_state) {
  switch (process_state) {
    case 'T':
    case 't':
      return "its process is stopped (a SIGSTOP or a debugger)";
    case 'D':
      return "its process waits for a device or a disk and cannot be interrupted";
    default:
      return absl::StrCat("its process is in state ", std::string(1, process_state));
  }
}

}  // namespace

v1::Failure FailureOfExit(int rank, const ProcessExit& exit, const std::string& stderr_tail) {
  v1::Failure failure;
  failure.set_rank(rank);
  if (exit.exit_code.has_value()) failure.set_exit_code(*exit.exit_code);
  if (exit.signal.has_value()) failure.set_signal(*exit.signal);
  SetTail(stderr_tail, &failure);
  const bool said_so = std::any_of(std::begin(kOutOfMemoryMarks), std::end(kOutOfMemoryMarks),
                                   [&](const char* mark) { return absl::StrContains(stderr_tail, mark); });
  std::string message = absl::StrCat("engine of rank ", rank, " ended with ", exit.ToString());
  if (exit.out_of_memory) {
    failure.set_reason(v1::FAILURE_REASON_OUT_OF_MEMORY);
    absl::StrAppend(
        &message,
        ": the host ran out of memory and the kernel killed it; lower data.max_token_len_per_gpu, use fewer ranks on "
        "the host or model_dtype bf16");
  } else if (said_so) {
    failure.set_reason(v1::FAILURE_REASON_OUT_OF_MEMORY);
    absl::StrAppend(&message, ": memory ran out; lower data.max_token_len_per_gpu or use model_dtype bf16");
  } else {
    failure.set_reason(v1::FAILURE_REASON_ENGINE_CRASHED);
  }
  failure.set_message(WithLastLine(message, failure));
  return failure;
}

v1::Failure FailureOfSilence(int rank, absl::Duration silence, char process_state, const std::string& stderr_tail) {
  v1::Failure failure;
  failure.set_rank(rank);
  failure.set_reason(v1::FAILURE_REASON_ENGINE_CRASHED);
  SetTail(stderr_tail, &failure);
  failure.set_message(
      WithLastLine(absl::StrCat("engine of rank ", rank, " answered nothing for ", absl::FormatDuration(silence), " (",
                                Meaning(process_state), ") and was killed"),
                   failure));
  return failure;
}

}  // namespace sluice::worker
