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

std::string LastLine(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : lines.back();
}

}  // namespace

v1::Failure FailureOfExit(int rank, const ProcessExit& exit, const std::string& stderr_tail) {
  v1::Failure failure;
  failure.set_rank(rank);
  if (exit.exit_code.has_value()) failure.set_exit_code(*exit.exit_code);
  if (exit.signal.has_value()) failure.set_signal(*exit.signal);
  const size_t kept = std::min<size_t>(stderr_tail.size(), kStderrTailBytes);
  failure.set_stderr_tail(stderr_tail.substr(stderr_tail.size() - kept));
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
  const std::string last_line = LastLine(failure.stderr_tail());
  if (!last_line.empty()) absl::StrAppend(&message, "; its last line was: ", last_line);
  failure.set_message(message);
  return failure;
}

}  // namespace sluice::worker
