// Shows a job while it runs: a bar that is redrawn on a terminal, lines otherwise, JSON lines for programs.
#pragma once

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
  bool bar_shown_ = false;
};

}  // namespace sluice::cli
