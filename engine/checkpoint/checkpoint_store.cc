#include "engine/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/crc32c.h"
#include "common/status.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

constexpr char kStagingMark[] = ".staging-";
constexpr char kSetAsideMark[] = ".set-aside-";
constexpr char kDeletingMark[] = ".deleting";

std::string StepPath(const CheckpointStoreOptions& options, int64_t step) {
  return JoinPath(options.folder, CheckpointName(step));
}

// Gives a checkpoint's folder another name, after which no listing shows it.
absl::Status MoveAside(FileSystem& file_system, const CheckpointStoreOptions& options, int64_t step) {
  const std::string from = StepPath(options, step);
  const std::string to = absl::StrCat(from, kSetAsideMark, options.attempt);
  for (int i = 0;; ++i) {
    // The same attempt may set aside one step twice.
    const absl::Status renamed = file_system.Rename(from, i == 0 ? to : absl::StrCat(to, "-", i));
    if (absl::IsAlreadyExists(renamed) && i < 1000) continue;
    return renamed;
  }
}

// Under another name first: a deletion that is interrupted must not leave half a checkpoint under the name of a whole
// one.
absl::Status DeleteCheckpoint(FileSystem& file_system, const CheckpointStoreOptions& options, int64_t step) {
  const std::string path = StepPath(options, step);
  const std::string doomed = path + kDeletingMark;
  RETURN_IF_ERROR(file_system.RemoveFolder(doomed));
  RETURN_IF_ERROR(file_system.Rename(path, doomed));
  RETURN_IF_ERROR(file_system.SyncFolder(options.folder));
  return file_system.RemoveFolder(doomed);
}

absl::Status ApplyRetention(FileSystem& file_system, const CheckpointStoreOptions& options, int64_t newest_commit,
                            std::vector<int64_t>& deleted) {
  if (options.max_ckpt_to_keep == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> listing, ListCheckpoints(file_system, options.folder));
  std::vector<int64_t> committed;
  for (const CheckpointInfo& info : listing) {
    if (info.problem.ok()) committed.push_back(info.step);
  }
  std::optional<int64_t> best_step;
  if (options.merit != nullptr) {
    if (const auto best = BestCheckpoint(listing, options.merit); best.has_value()) best_step = best->step;
  }
  for (const int64_t step : StepsToDelete(std::move(committed), options.max_ckpt_to_keep, newest_commit, best_step)) {
    RETURN_IF_ERROR(DeleteCheckpoint(file_system, options, step));
    deleted.push_back(step);
  }
  return absl::OkStatus();
}

// Every listed file is in the folder with its size; anything else there is a leftover of an earlier try and goes.
absl::Status CheckStaging(FileSystem& file_system, const std::string& staging, const std::vector<FileEntry>& entries) {
  std::map<std::string, uint64_t> present;
  ASSIGN_OR_RETURN(const std::vector<FolderEntry> found, file_system.ListFolder(staging));
  for (const FolderEntry& entry : found) present[entry.name] = entry.bytes;
  for (const FileEntry& entry : entries) {
    const auto file = present.find(entry.name);
    if (file == present.end() || file->second != entry.bytes) {
      return absl::FailedPreconditionError(absl::StrCat(
          staging, ": ", entry.name, file == present.end() ? " is not there" : " has another size than was written",
          " (trainer.default_local_dir must be one folder that all hosts share)"));
    }
    present.erase(file);
  }
  for (const auto& [name, bytes] : present) RETURN_IF_ERROR(file_system.RemoveFile(JoinPath(staging, name)));
  return absl::OkStatus();
}

}  // namespace

PendingCheckpoint::PendingCheckpoint(FileSystem& file_system, CheckpointStoreOptions options, int64_t step)
    : file_system_(&file_system),
      options_(std::move(options)),
      step_(step),
      staging_(absl::StrCat(StepPath(options_, step), kStagingMark, options_.attempt)) {}

absl::Status PendingCheckpoint::AddFile(const std::string& name, const std::string& contents) {
  RETURN_IF_ERROR(WriteFileAtomically(*file_system_, JoinPath(staging_, name), contents));
  entries_.push_back(FileEntry{name, contents.size(), Crc32c(std::as_bytes(std::span(contents)))});
  return absl::OkStatus();
}

absl::Status PendingCheckpoint::AddTensors(const std::string& name, const std::vector<TensorData>& tensors,
                                           const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(FileEntry entry, WriteSafetensors(*file_system_, JoinPath(staging_, name), tensors, metadata));
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status PendingCheckpoint::AddTensors(const std::string& name, std::vector<TensorSpec> specs,
                                           const TensorSource& source,
                                           const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(FileEntry entry,
                   WriteSafetensors(*file_system_, JoinPath(staging_, name), std::move(specs), source, metadata));
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::StatusOr<CommitResult> PendingCheckpoint::Commit(const std::vector<FileEntry>& entries, int64_t world_size,
                                                       const std::string& metadata_json) {
  const absl::StatusOr<std::string> manifest = SerializeManifest(Manifest{step_, world_size, entries, metadata_json});
  if (!manifest.ok()) return Annotate(manifest.status(), staging_);
  RETURN_IF_ERROR(CheckStaging(*file_system_, staging_, entries));
  RETURN_IF_ERROR(WriteFileAtomically(*file_system_, JoinPath(staging_, kManifestName), *manifest));

  CommitResult result;
  result.path = StepPath(options_, step_);
  absl::Status renamed = file_system_->Rename(staging_, result.path);
  if (absl::IsAlreadyExists(renamed)) {
    if (Checkpoint::Open(*file_system_, result.path).ok()) {
      return absl::AlreadyExistsError(absl::StrCat(result.path, ": this step is committed already"));
    }
    RETURN_IF_ERROR(MoveAside(*file_system_, options_, step_));  // a damaged one; the new one is better
    renamed = file_system_->Rename(staging_, result.path);
  }
  RETURN_IF_ERROR(renamed);
  RETURN_IF_ERROR(file_system_->SyncFolder(options_.folder));
  result.retention = ApplyRetention(*file_system_, options_, step_, result.deleted_steps);
  return result;
}

absl::Status PendingCheckpoint::Abort() { return file_system_->RemoveFolder(staging_); }

CheckpointStore::CheckpointStore(FileSystem& file_system, CheckpointStoreOptions options)
    : file_system_(&file_system), options_(std::move(options)) {}

absl::StatusOr<CheckpointStore> CheckpointStore::Create(FileSystem& file_system, CheckpointStoreOptions options) {
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  };
  if (options.folder.empty()) return absl::InvalidArgumentError("trainer.default_local_dir: is empty");
  if (options.max_ckpt_to_keep < 0) {
    return absl::InvalidArgumentError(absl::StrCat("trainer.max_ckpt_to_keep: ", options.max_ckpt_to_keep,
                                                   " (expected 1 or more; leave it out to keep all)"));
  }
  if (options.attempt.empty() || !std::all_of(options.attempt.begin(), options.attempt.end(), allowed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint attempt \"", options.attempt, "\" (letters, digits, '-', '_')"));
  }
  return CheckpointStore(file_system, std::move(options));
}

absl::StatusOr<PendingCheckpoint> CheckpointStore::Begin(int64_t step) {
  if (step < 0) return absl::InvalidArgumentError(absl::StrCat("checkpoint of step ", step));
  if (Open(step).ok())
    return absl::AlreadyExistsError(absl::StrCat(StepPath(options_, step), ": this step is committed already"));
  PendingCheckpoint pending(*file_system_, options_, step);
  RETURN_IF_ERROR(CreateFolderWithParents(*file_system_, pending.staging_));
  return pending;
}

absl::StatusOr<std::vector<CheckpointInfo>> CheckpointStore::List() const {
  return ListCheckpoints(*file_system_, options_.folder);
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::Latest() const {
  ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> listing, List());
  for (auto info = listing.rbegin(); info != listing.rend(); ++info) {
    if (info->problem.ok()) return std::optional<CheckpointInfo>(*info);
  }
  return std::optional<CheckpointInfo>();
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::Best() const {
  if (options_.merit == nullptr) return std::optional<CheckpointInfo>();
  ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> listing, List());
  return BestCheckpoint(listing, options_.merit);
}

absl::StatusOr<Checkpoint> CheckpointStore::Open(int64_t step) const {
  return Checkpoint::Open(*file_system_, StepPath(options_, step));
}

absl::StatusOr<std::vector<int64_t>> CheckpointStore::SetAsideNewerThan(int64_t step) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> listing, List());
  std::vector<int64_t> steps;
  // The newest first: if this stops half-way, an automatic resume still finds a run's checkpoints without a gap.
  for (auto info = listing.rbegin(); info != listing.rend() && info->step > step; ++info) {
    RETURN_IF_ERROR(MoveAside(*file_system_, options_, info->step));
    steps.push_back(info->step);
  }
  if (!steps.empty()) RETURN_IF_ERROR(file_system_->SyncFolder(options_.folder));
  return steps;
}

absl::StatusOr<std::vector<std::string>> CheckpointStore::RemoveStale() {
  const absl::StatusOr<std::vector<FolderEntry>> entries = file_system_->ListFolder(options_.folder);
  if (absl::IsNotFound(entries.status())) return std::vector<std::string>{};
  RETURN_IF_ERROR(entries.status());
  std::vector<std::string> removed;
  for (const FolderEntry& entry : *entries) {
    const size_t dot = entry.name.find('.');
    if (!entry.is_folder || dot == std::string::npos || !StepOfCheckpointName(entry.name.substr(0, dot)).has_value())
      continue;
    const std::string rest = entry.name.substr(dot);
    const bool staging = absl::StartsWith(rest, kStagingMark) && rest != kStagingMark + options_.attempt;
    if (!staging && rest != kDeletingMark) continue;
    RETURN_IF_ERROR(file_system_->RemoveFolder(JoinPath(options_.folder, entry.name)));
    removed.push_back(entry.name);
  }
  return removed;
}

std::string RankStateName(int64_t rank) { return absl::StrFormat("rank_%05d.json", rank); }

}  // namespace sluice::engine
