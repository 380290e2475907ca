#include "tools/cli/progress_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "tools/cli/output.h"

namespace sluice::cli {
namespace {

constexpr int kBarWidth = 20;

std::string StepNumbers(const v1::StepMetrics& step) {
  std::string text = absl::StrFormat("loss %.4f  grad_norm %.3g  lr %.3g", step.loss(), step.grad_norm(), step.lr());
  if (step.seconds() > 0) {
    absl::StrAppendFormat(&text, "  tokens/s %.0f  TFLOP/s %.3g", static_cast<double>(step.tokens()) / step.seconds(),
                          step.model_flops() / step.seconds() / 1e12);
  }
  if (step.skipped_nonfinite()) absl::StrAppend(&text, "  (skipped: not finite)");
  return text;
}

std::string TimeLeft(const v1::Progress& progress) {
  if (!progress.has_eta_seconds()) return "";
  return absl::StrCat("  left ", ShortDuration(absl::Seconds(progress.eta_seconds())));
}

}  // namespace

std::string EventLine(const v1::WatchJobResponse& update) {
  const v1::JobEvent& event = update.event();
  switch (event.detail_case()) {
    case v1::JobEvent::kStep:
      return absl::StrCat("step ", event.step().step(), "/", update.job().progress().total_steps(), "  ",
                          StepNumbers(event.step()), TimeLeft(update.job().progress()));
    case v1::JobEvent::kValidation:
      return absl::StrFormat("validation after step %d  loss %.4f  (%d rows, %d scored tokens, %s)",
                             event.validation().step(), event.validation().loss(), event.validation().samples(),
                             event.validation().scored_tokens(),
                             ShortDuration(absl::Seconds(event.validation().seconds())));
    case v1::JobEvent::kCheckpointStep:
      return absl::StrCat("checkpoint of step ", event.checkpoint_step(), " committed");
    case v1::JobEvent::DETAIL_NOT_SET:
      break;
  }
  return absl::StrCat(update.job().job_id(), " ", StateName(event.state()), event.message().empty() ? "" : ": ",
                      event.message());
}

std::string ProgressBar(const v1::Progress& progress, int columns) {
  const int64_t total = std::max<int64_t>(1, progress.total_steps());
  const int filled = static_cast<int>(std::min(progress.step(), total) * kBarWidth / total);
  std::string bar = absl::StrCat("[", std::string(filled, '='));
  if (filled < kBarWidth) absl::StrAppend(&bar, ">", std::string(kBarWidth - filled - 1, ' '));
  absl::StrAppend(&bar, "] ", progress.step(), "/", progress.total_steps());
  if (progress.has_last_step()) absl::StrAppend(&bar, "  ", StepNumbers(progress.last_step()));
  absl::StrAppend(&bar, TimeLeft(progress));
  return bar.substr(0, std::max(0, columns));
}

std::string Summary(const v1::Job& job) {
  std::string text = absl::StrCat(job.job_id(), " ", StateName(job.state()));
  if (job.state() == v1::JOB_STATE_FAILED) {
    return absl::StrCat(text, " (",
                        absl::StripPrefix(v1::FailureReason_Name(job.failure().reason()), "FAILURE_REASON_"),
                        "): ", job.failure().message());
  }
  if (job.state() == v1::JOB_STATE_CANCELLED && !job.status_message().empty())
    absl::StrAppend(&text, ": ", job.status_message());
  const v1::Progress& progress = job.progress();
  absl::StrAppend(&text, " after ", progress.step(), " steps");
  if (progress.has_first_val_loss() && progress.has_last_val_loss() && job.state() == v1::JOB_STATE_SUCCEEDED) {
    absl::StrAppendFormat(&text, "\nvalidation loss %.4f before, %.4f after", progress.first_val_loss(),
                          progress.last_val_loss());
  } else if (progress.has_last_val_loss()) {
    absl::StrAppendFormat(&text, "\nvalidation loss %.4f", progress.last_val_loss());
  }
  if (!job.output_path().empty()) absl::StrAppend(&text, "\nmodel: ", job.output_path());
  return text;
}

}  // namespace sluice::cli
