#include "engine/checkpoint/checkpoint_listing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/checkpoint.h"

namespace sluice::engine {
namespace {

constexpr char kPrefix[] = "global_step_";

absl::StatusOr<ResumeDecision> ResolvePath(const std::vector<CheckpointInfo>& listing, const std::string& path) {
  const std::optional<int64_t> step = StepOfCheckpointName(SplitPath(path).name);
  if (!step.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("trainer.resume_from_path: \"", path, "\" must end in ", kPrefix,
                                                   "<N>, the folder of one checkpoint"));
  }
  for (const CheckpointInfo& info : listing) {
    if (info.step != *step) continue;
    if (!info.problem.ok()) return Annotate(info.problem, "trainer.resume_from_path");
    return ResumeDecision{info, absl::StrCat("trainer.resume_from_path names ", info.path)};
  }
  return absl::NotFoundError(absl::StrCat("trainer.resume_from_path: ", path, ": there is no such checkpoint"));
}

}  // namespace

std::string CheckpointName(int64_t step) { return absl::StrCat(kPrefix, step); }

std::optional<int64_t> StepOfCheckpointName(const std::string& name) {
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  int64_t step = 0;
  if (!absl::SimpleAtoi(name.substr(sizeof(kPrefix) - 1), &step) || step < 0) return std::nullopt;
  if (CheckpointName(step) != name) return std::nullopt;  // leading zeros, signs and spaces
  return step;
}

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(FileSystem& file_system, const std::string& folder) {
  const absl::StatusOr<std::vector<FolderEntry>> entries = file_system.ListFolder(folder);
  if (absl::IsNotFound(entries.status())) return std::vector<CheckpointInfo>{};
  RETURN_IF_ERROR(entries.status());
  std::vector<CheckpointInfo> listing;
  for (const FolderEntry& entry : *entries) {
    const std::optional<int64_t> step = StepOfCheckpointName(entry.name);
    if (!step.has_value() || !entry.is_folder) continue;
    CheckpointInfo info{.step = *step, .path = JoinPath(folder, entry.name), .problem = absl::OkStatus()};
    const absl::StatusOr<Checkpoint> opened = Checkpoint::Open(file_system, info.path);
    if (!opened.ok()) {
      info.problem = opened.status();
    } else if (opened->manifest().step != *step) {
      info.problem = absl::DataLossError(absl::StrCat(info.path, ": holds the checkpoint of step ",
                                                      opened->manifest().step, " (was the folder renamed?)"));
    } else {
      info.metadata_json = opened->manifest().metadata_json;
    }
    listing.push_back(std::move(info));
  }
  std::sort(listing.begin(), listing.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return listing;
}

std::optional<CheckpointInfo> BestCheckpoint(const std::vector<CheckpointInfo>& listing, const CheckpointMerit& merit) {
  std::optional<CheckpointInfo> best;
  double best_merit = 0;
  for (const CheckpointInfo& info : listing) {
    if (!info.problem.ok()) continue;
    const std::optional<double> own = merit(info.metadata_json);
    if (!own.has_value() || std::isnan(*own) || (best.has_value() && *own <= best_merit)) continue;
    best = info;
    best_merit = *own;
  }
  return best;
}

std::vector<int64_t> StepsToDelete(std::vector<int64_t> committed_steps, int64_t max_ckpt_to_keep,
                                   int64_t newest_commit, std::optional<int64_t> best) {
  if (max_ckpt_to_keep <= 0 || committed_steps.empty()) return {};
  std::sort(committed_steps.begin(), committed_steps.end());
  int64_t excess = static_cast<int64_t>(committed_steps.size()) - max_ckpt_to_keep;
  std::vector<int64_t> deleted;
  for (const int64_t step : committed_steps) {
    if (excess <= 0) break;
    if (step == newest_commit || step == committed_steps.back()) continue;
    // The best is spared, and takes no other's place.
    --excess;
    if (step != best) deleted.push_back(step);
  }
  return deleted;
}

absl::StatusOr<ResumeMode> ParseResumeMode(const std::string& text) {
  if (text == "auto") return ResumeMode::kAuto;
  if (text == "disable") return ResumeMode::kDisable;
  if (text == "resume_path") return ResumeMode::kResumePath;
  return absl::InvalidArgumentError(
      absl::StrCat("trainer.resume_mode: \"", text, "\" (expected auto, disable or resume_path)"));
}

absl::StatusOr<ResumeDecision> ResolveResume(const std::vector<CheckpointInfo>& listing, ResumeMode mode,
                                             const std::string& resume_from_path) {
  if (mode == ResumeMode::kDisable) return ResumeDecision{std::nullopt, "trainer.resume_mode is disable"};
  if (mode == ResumeMode::kResumePath) return ResolvePath(listing, resume_from_path);
  if (listing.empty()) return ResumeDecision{std::nullopt, "there is no checkpoint yet"};
  std::string passed_over;
  for (auto info = listing.rbegin(); info != listing.rend(); ++info) {
    if (info->problem.ok()) return ResumeDecision{*info, absl::StrCat("newest intact checkpoint", passed_over)};
    absl::StrAppend(&passed_over, "; passed over: ", info->problem.message());
  }
  return absl::DataLossError(absl::StrCat("no checkpoint is intact", passed_over,
                                          " (trainer.resume_mode: disable starts from the beginning)"));
}

absl::StatusOr<ResumeDecision> FindResume(FileSystem& file_system, const std::string& folder, ResumeMode mode,
                                          const std::string& resume_from_path) {
  const std::string listed = mode == ResumeMode::kResumePath ? SplitPath(resume_from_path).folder : folder;
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> listing, ListCheckpoints(file_system, listed));
  for (;;) {
    ASSIGN_OR_RETURN(ResumeDecision decision, ResolveResume(listing, mode, resume_from_path));
    if (!decision.checkpoint.has_value()) return decision;
    absl::Status intact = absl::OkStatus();
    if (const absl::StatusOr<Checkpoint> opened = Checkpoint::Open(file_system, decision.checkpoint->path);
        opened.ok()) {
      intact = opened->Verify();
    } else {
      intact = opened.status();
    }
    if (intact.ok()) return decision;
    // Each round takes one candidate away, so this ends.
    for (CheckpointInfo& info : listing) {
      if (info.step == decision.checkpoint->step) info.problem = intact;
    }
  }
}

}  // namespace sluice::engine
