#include "tools/cli/job_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tools/cli/progress_text.h"

namespace sluice::cli {
namespace {

int TerminalColumns() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

JobView::JobView(Format format) : format_(format), terminal_(isatty(STDOUT_FILENO) != 0) {}

void JobView::ClearBar() {
  if (bar_shown_) Print("\r\033[K");
  bar_shown_ = false;
}

void JobView::Show(const v1::WatchJobResponse& update) {
  if (format_ != Format::kTable) {
    Print(format_ == Format::kJson ? ToJson(update.event()) : "---\n" + ToYaml(update.event()));
    return;
  }
  ClearBar();
  // On a terminal steps move the bar; what happens rarely stays as a line above it.
  if (!terminal_ || !update.event().has_step()) Print(EventLine(update) + "\n");
  if (terminal_ && update.job().progress().total_steps() > 0) {
    Print(ProgressBar(update.job().progress(), TerminalColumns() - 1));
    bar_shown_ = true;
  }
}

void JobView::Finish(const v1::Job& job) {
  if (format_ != Format::kTable) {
    Print(format_ == Format::kJson ? ToJson(job) : "---\n" + ToYaml(job));
    return;
  }
  ClearBar();
  // Errors go where errors go.
  std::fprintf(job.state() == v1::JOB_STATE_FAILED ? stderr : stdout, "%s\n", Summary(job).c_str());
}

}  // namespace sluice::cli
