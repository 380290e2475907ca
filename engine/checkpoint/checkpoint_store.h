// The checkpoints of one run: folders <folder>/global_step_<N>, each committed by its manifest.json.
// docs/checkpoint-format.md.
//
// Saving, in each process of the job (the files go to a staging folder that no reader looks at):
//   ASSIGN_OR_RETURN(PendingCheckpoint pending, store.Begin(step));
//   if (rank == 0) RETURN_IF_ERROR(pending.AddTensors("weights.safetensors", tensors, {}));
//   RETURN_IF_ERROR(pending.AddFile(RankStateName(rank), rank_state));
//   entries = gather SerializeFileEntries(pending.entries()) on rank 0;       // also the barrier: all files are
//   durable if (rank == 0) ASSIGN_OR_RETURN(CommitResult result, pending.Commit(entries, world_size, metadata_json));
//   if a rank failed: rank 0 calls pending.Abort() once all have stopped writing.
//
// Durability: when Commit returns OK the checkpoint survives a power loss. When it returns anything else, or a process
// dies at any point, the checkpoint is there whole or not at all, and every checkpoint committed before is untouched.
// The listing of the folder is the only record of what exists: there is no tracker file, and retention works after a
// resume. Threads: one PendingCheckpoint by one thread; the store's methods by one thread at a time. Processes: any
// number may Begin the same step of the same attempt; two commits of one step (by two attempts) cannot both succeed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_listing.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "engine/checkpoint/tensor_data.h"

namespace sluice::engine {

struct CheckpointStoreOptions {
  std::string folder;            // trainer.default_local_dir; made when the first checkpoint is saved
  int64_t max_ckpt_to_keep = 0;  // committed checkpoints that stay, the newest ones; 0 = all
  CheckpointMerit merit;         // set: the best by it stays too
  // Names this run of the job among others that may use the folder, the same in all its processes and different after a
  // restart. Letters, digits, '-' and '_'.
  std::string attempt;
};

struct CommitResult {
  std::string path;
  std::vector<int64_t> deleted_steps;  // by retention
  absl::Status retention;              // an error here does not undo the commit; what it left is deleted next time
};

// The part of one process in a checkpoint being saved.
class PendingCheckpoint {
 public:
  int64_t step() const { return step_; }

  // Write one file each, durably, and add it to entries(). Names must differ between processes.
  absl::Status AddFile(const std::string& name, const std::string& contents);
  absl::Status AddTensors(const std::string& name, const std::vector<TensorData>& tensors,
                          const std::map<std::string, std::string>& metadata);
  absl::Status AddTensors(const std::string& name, std::vector<TensorSpec> specs, const TensorSource& source,
                          const std::map<std::string, std::string>& metadata);

  // What this process has added.
  const std::vector<FileEntry>& entries() const { return entries_; }

  // Makes the checkpoint of the files of all processes (`entries`, this process's own included) and applies retention.
  // In one process, once every other one has added its files. AlreadyExists: the step was committed meanwhile.
  // FailedPrecondition: a file of `entries` is not in the staging folder with its size (the folder is not shared by all
  // hosts?). InvalidArgument: as SerializeManifest says.
  absl::StatusOr<CommitResult> Commit(const std::vector<FileEntry>& entries, int64_t world_size,
                                      const std::string& metadata_json);

  // Removes the staging folder, so that a full disk has room again. In one process, once no other one is writing.
  absl::Status Abort();

 private:
  friend class CheckpointStore;
  PendingCheckpoint(FileSystem& file_system, CheckpointStoreOptions options, int64_t step);

  FileSystem* file_system_;
  CheckpointStoreOptions options_;
  int64_t step_;
  std::string staging_;
  std::vector<FileEntry> entries_;
};

class CheckpointStore {
 public:
  // `file_system` must outlive the store and what it returns. InvalidArgument: no folder, a negative max_ckpt_to_keep,
  // or an attempt with other characters than its comment allows.
  static absl::StatusOr<CheckpointStore> Create(FileSystem& file_system, CheckpointStoreOptions options);

  // Starts this process's part of a checkpoint. AlreadyExists: the step is committed already.
  absl::StatusOr<PendingCheckpoint> Begin(int64_t step);

  // As ListCheckpoints of this folder.
  absl::StatusOr<std::vector<CheckpointInfo>> List() const;

  // The intact checkpoint with the largest step, by sizes; none if there is none.
  absl::StatusOr<std::optional<CheckpointInfo>> Latest() const;

  // The intact checkpoint with the largest merit, by sizes; none without CheckpointStoreOptions::merit.
  absl::StatusOr<std::optional<CheckpointInfo>> Best() const;

  // As Checkpoint::Open of the step's folder.
  absl::StatusOr<Checkpoint> Open(int64_t step) const;

  // Renames every checkpoint with a step above `step`, damaged ones too, to "global_step_<N>.set-aside-<attempt>",
  // which no listing shows. For a run that starts from an older checkpoint or, with -1, from the beginning: what it
  // saves must not meet another run's checkpoints of the same steps, and a later automatic resume must not take one of
  // those. Returns the steps.
  absl::StatusOr<std::vector<int64_t>> SetAsideNewerThan(int64_t step);

  // Removes staging folders of other attempts and what interrupted deletions left. Only for the owner of the folder,
  // when no other run can be saving into it. Returns the names.
  absl::StatusOr<std::vector<std::string>> RemoveStale();

 private:
  CheckpointStore(FileSystem& file_system, CheckpointStoreOptions options);

  FileSystem* file_system_;
  CheckpointStoreOptions options_;
};

// "rank_00003.json": the file of a process's own small state.
std::string RankStateName(int64_t rank);

}  // namespace sluice::engine
