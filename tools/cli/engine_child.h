// An engine of our own, for looking at a model or at data without a controller.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "common/temporary_folder.h"
#include "sluice/v1/engine.pb.h"
#include "worker/engine_process.h"

namespace sluice::cli {

class EngineChild {
 public:
  // Starts the engine beside our own program. Unavailable: there is none.
  static absl::StatusOr<std::unique_ptr<EngineChild>> Start();
  ~EngineChild();

  // Blocks until the answer. An engine that died is Aborted with its last words.
  absl::StatusOr<v1::StageResponse> Run(const v1::StageRequest& request);

 private:
  explicit EngineChild(TemporaryFolder folder) : folder_(std::move(folder)) {}

  TemporaryFolder folder_;
  std::unique_ptr<worker::EngineProcess> engine_;
  int64_t sequence_ = 0;
};

}  // namespace sluice::cli
