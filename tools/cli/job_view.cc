#include "tools/cli/job_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tools/cli/progress_text.h"

namespace sluice::cli {
namespace {

int TerminalColumns() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Whether a line can be taken back and written again.
bool CanRedraw() {
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb" && *terminal != '\0';
}

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

JobView::JobView(Format format) : format_(format), terminal_(CanRedraw()) {}

void JobView::ClearBar() {
  if (!bar_.empty()) Print(EraseBar(bar_.size(), TerminalColumns()));
  bar_.clear();
}

void JobView::Show(const v1::WatchJobResponse& update) {
  if (format_ != Format::kTable) {
    Print(format_ == Format::kJson ? ToJson(update.event()) : "---\n" + ToYaml(update.event()));
    return;
  }
  // On a terminal steps move the bar; what happens rarely stays as a line above it.
  if (!terminal_ || !update.event().has_step()) {
    ClearBar();
    Print(EventLine(update) + "\n");
  }
  const v1::Job& job = update.job();
  if (!terminal_ || job.progress().total_steps() == 0 || job.has_end_time()) return;
  // The last column stays free: a terminal may go to the next line behind it.
  const std::string bar = ProgressBar(job.progress(), TerminalColumns() - 1);
  if (bar == bar_) return;
  ClearBar();
  Print(bar);
  bar_ = bar;
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
