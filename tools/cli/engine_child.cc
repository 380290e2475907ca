#include "tools/cli/engine_child.h"

#include <cstdio>
#include <filesystem>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace sluice::cli {

absl::StatusOr<std::unique_ptr<EngineChild>> EngineChild::Start() {
  ASSIGN_OR_RETURN(TemporaryFolder folder, TemporaryFolder::Create("sluice-"));
  std::unique_ptr<EngineChild> child(new EngineChild(std::move(folder)));
  std::error_code error;
  worker::EngineLaunch launch;
  launch.engine_binary =
      (std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "sluice-engine").string();
  launch.socket_path = child->folder_.path() + "/engine.sock";
  launch.log_path = child->folder_.path() + "/engine.log";
  launch.cpu_threads = std::max(1u, std::thread::hardware_concurrency());
  launch.host = "127.0.0.1";
  ASSIGN_OR_RETURN(child->engine_, worker::EngineProcess::Start(launch));
  RETURN_IF_ERROR(child->engine_->WaitUntilReady(absl::Minutes(2)).status());
  return child;
}

EngineChild::~EngineChild() {
  if (engine_ != nullptr) engine_->Stop(absl::Seconds(5));
}

absl::StatusOr<v1::StageResponse> EngineChild::Run(const v1::StageRequest& request) {
  v1::StageRequest numbered = request;
  numbered.set_sequence(++sequence_);
  absl::StatusOr<v1::StageResponse> response = engine_->RunStage(numbered, absl::Now() + absl::Hours(24));
  if (response.ok()) {
    for (const std::string& warning : response->warnings()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
    return response;
  }
  if (const auto failure =
          engine_->UnaskedExit(absl::IsUnavailable(response.status()) ? absl::Seconds(5) : absl::ZeroDuration())) {
    return absl::AbortedError(failure->message());
  }
  return response.status();
}

}  // namespace sluice::cli
