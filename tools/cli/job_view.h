// Shows a job while it runs: a bar that is redrawn on a terminal (unless TERM says that it is a dumb one), lines
// otherwise, JSON lines for programs. Nothing is coloured.
#pragma once

#include <string>

#include "sluice/v1/controller.pb.h"
#include "tools/cli/output.h"

namespace sluice::cli {

class JobView {
 public:
  // kTable: for people, on standard output. kJson and kYaml: one document for each event.
  explicit JobView(Format format);

  void Show(const v1::WatchJobResponse& update);

  // The last word on a job that has ended.
  void Finish(const v1::Job& job);

 private:
  void ClearBar();

  const Format format_;
  const bool terminal_;
  std::string bar_;  // what stands on the terminal's last line; empty: nothing
};

}  // namespace sluice::cli
