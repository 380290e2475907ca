// What checkpoints a folder holds, and the decisions made from that: which to resume from, which to delete.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"

namespace sluice::engine {

struct CheckpointInfo {
  int64_t step = 0;
  std::string path;
  absl::Status problem;              // OK: committed, and every file has its size. Otherwise why it cannot be used
  std::string metadata_json = "{}";  // of its manifest, where that could be read
};

// How good a checkpoint is by its manifest's metadata, larger being better; none: it is not compared.
using CheckpointMerit = std::function<std::optional<double>(const std::string& metadata_json)>;

// "global_step_20", and back; none for any other text.
std::string CheckpointName(int64_t step);
std::optional<int64_t> StepOfCheckpointName(const std::string& name);

// All folders global_step_<N> in `folder`, by rising step. Empty if `folder` is not there.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(FileSystem& file_system, const std::string& folder);

// The intact one of the largest merit, the earliest of equals; none where none is compared. Pure.
std::optional<CheckpointInfo> BestCheckpoint(const std::vector<CheckpointInfo>& listing, const CheckpointMerit& merit);

// Which steps to delete so that the newest `max_ckpt_to_keep` of `committed_steps` stay (0 = all stay) and, besides,
// `best`. Never `newest_commit`, the step just committed, nor the largest step. Pure.
std::vector<int64_t> StepsToDelete(std::vector<int64_t> committed_steps, int64_t max_ckpt_to_keep,
                                   int64_t newest_commit, std::optional<int64_t> best);

enum class ResumeMode {
  kAuto,        // from the newest intact checkpoint of the folder; from the beginning if the folder has no checkpoint
  kDisable,     // from the beginning
  kResumePath,  // from the checkpoint that trainer.resume_from_path names
};

// "auto", "disable", "resume_path". InvalidArgument names the key trainer.resume_mode and what it may be.
absl::StatusOr<ResumeMode> ParseResumeMode(const std::string& text);

struct ResumeDecision {
  std::optional<CheckpointInfo> checkpoint;  // none: from the beginning
  std::string reason;                        // one sentence for the log
};

// Decides from a listing: of the run's folder or, for kResumePath, of the folder that holds `resume_from_path`. Pure.
// A run starts from the beginning only when told so or when there is nothing: if there are checkpoints and none is
// intact, DataLoss. kResumePath: InvalidArgument when the path's last part is not global_step_<N>, NotFound when it is
// not listed, its problem when it has one.
absl::StatusOr<ResumeDecision> ResolveResume(const std::vector<CheckpointInfo>& listing, ResumeMode mode,
                                             const std::string& resume_from_path);

// Lists, verifies the checksums of the checkpoint that would be taken, and decides; a damaged one is passed over by
// kAuto (the reason says so) and is an error for kResumePath. Reads the whole checkpoint once. To be called in one
// process, the others are told.
absl::StatusOr<ResumeDecision> FindResume(FileSystem& file_system, const std::string& folder, ResumeMode mode,
                                          const std::string& resume_from_path);

}  // namespace sluice::engine
