// ModelRole: checkpoints, resume and export.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/build_info.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_listing.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/model_folder_writer.h"
#include "engine/roles/job_options.h"
#include "engine/roles/model_role.h"

namespace sluice::engine {
namespace {

// Names of a checkpoint's files; docs/checkpoint-format.md lists them.
constexpr char kWeightsName[] = "weights.safetensors";
constexpr char kOptimizerName[] = "optimizer.safetensors";

bool Contains(const google::protobuf::RepeatedPtrField<std::string>& list, const char* name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Rank 0's resume decision as text, for the other ranks: the path (empty: from the beginning) and the reason.
std::string Serialize(const ResumeDecision& decision) {
  return nlohmann::json({{"path", decision.checkpoint ? decision.checkpoint->path : ""}, {"reason", decision.reason}})
      .dump();
}

int64_t BytesOf(const std::vector<FileEntry>& entries) {
  int64_t bytes = 0;
  for (const FileEntry& entry : entries) bytes += static_cast<int64_t>(entry.bytes);
  return bytes;
}

}  // namespace

absl::StatusOr<CheckpointStore> ModelRole::OpenStore() const {
  CheckpointStoreOptions options;
  options.folder = spec_.trainer().default_local_dir();
  options.max_ckpt_to_keep = spec_.trainer().max_ckpt_to_keep();
  options.attempt = attempt_name_;
  return CheckpointStore::Create(PosixFileSystem(), options);
}

TrainingState ModelRole::CurrentState() const {
  TrainingState state;
  state.step = steps_done_;
  const TrainingData data = training_data();
  state.data.epoch = steps_done_ / data.steps_per_epoch;
  state.data.samples_into_epoch =
      std::min(data.rows, steps_done_ % data.steps_per_epoch * spec_.data().train_batch_size());
  state.data.permutation_seed = static_cast<uint64_t>(spec_.trainer().seed());
  state.data.data_fingerprint = data.fingerprint;
  state.schedule.next_update = schedule_steps_;
  if (schedule_steps_ > 0) {
    state.schedule.learning_rate = schedule_->LearningRate(schedule_steps_);
    state.schedule.weight_decay = schedule_->WeightDecay(schedule_steps_);
  }
  // Nothing is drawn from a running generator: order, batches and samples are pure functions of (seed, step).
  state.random.seed = static_cast<uint64_t>(spec_.trainer().seed());
  state.counters = counters_;
  state.extra = ExtraState();
  return state;
}

absl::Status ModelRole::WriteCheckpointFiles(PendingCheckpoint* pending) {
  // Data-parallel ranks hold the same state: one of them writes it.
  if (options_.rank != 0) return absl::OkStatus();
  const auto& contents = spec_.checkpoint().save_contents();
  if (Contains(contents, "model")) {
    ASSIGN_OR_RETURN(const HostTensors weights, parameters_->ExportValues(parameters_->dtype()));
    RETURN_IF_ERROR(pending->AddTensors(kWeightsName, weights.tensors, {{"format", "pt"}}));
  }
  if (Contains(contents, "optimizer")) {
    ASSIGN_OR_RETURN(const std::vector<HostTensors> arrays, optimizer_->ExportState());
    std::vector<TensorData> tensors;
    for (const HostTensors& array : arrays) tensors.insert(tensors.end(), array.tensors.begin(), array.tensors.end());
    RETURN_IF_ERROR(pending->AddTensors(kOptimizerName, tensors, {}));
  }
  if (Contains(contents, "extra")) {
    ASSIGN_OR_RETURN(const std::string state, SerializeTrainingState(CurrentState()));
    RETURN_IF_ERROR(pending->AddFile(kTrainingStateName, state));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::CheckpointResult> ModelRole::SaveCheckpoint(const v1::SaveCheckpointOp& op) {
  RETURN_IF_ERROR(RequireTrainer());
  if (op.step() != steps_done_) {
    return absl::FailedPreconditionError(
        absl::StrCat("a checkpoint of step ", op.step(), " is asked for, but ", steps_done_, " steps are done"));
  }
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(CheckpointStore store, OpenStore());
  v1::CheckpointResult result;
  result.set_step(op.step());

  // Rank 0 alone writes; the others learn how it went.
  absl::Status saved;
  if (options_.rank == 0) {
    saved = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(PendingCheckpoint pending, store.Begin(op.step()));
      const absl::Status written = WriteCheckpointFiles(&pending);
      Failpoint("engine.checkpoint_before_commit");
      const std::string metadata =
          nlohmann::json({{"sluice_version", BuildVersion()}, {"recipe", spec_.recipe()}}).dump();
      absl::StatusOr<CommitResult> committed =
          written.ok() ? pending.Commit(pending.entries(), communicator_->world_size(), metadata) : written;
      if (!committed.ok()) {
        // The room it took is given back: on a full disk the next save may fit.
        if (const absl::Status aborted = pending.Abort(); !aborted.ok())
          LoggerFor("engine").Warning(std::string(aborted.message()));
        return committed.status();
      }
      Failpoint("engine.checkpoint_after_commit");
      if (!committed->retention.ok()) {
        LoggerFor("engine").Warning(
            absl::StrCat("an old checkpoint could not be deleted: ", committed->retention.message()));
      }
      result.set_path(committed->path);
      result.set_bytes(BytesOf(pending.entries()));
      if (Contains(spec_.checkpoint().save_contents(), "hf_model")) {
        ASSIGN_OR_RETURN(const int64_t exported, WriteHuggingFaceFolder(committed->path + "/huggingface"));
        result.set_bytes(result.bytes() + exported);
      }
      return absl::OkStatus();
    }();
    saved = Annotate(saved, absl::StrCat("checkpoint of step ", op.step()));
  }
  RETURN_IF_ERROR(communicator_->Agree(saved));
  result.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  return result;
}

absl::Status ModelRole::Restore(const std::string& path) {
  ForgetAhead();  // of other weights
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(PosixFileSystem(), path));
  for (const char* name : {kWeightsName, kOptimizerName, kTrainingStateName}) {
    if (!checkpoint.Contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has no ", name,
                       ": a run cannot go on from it (checkpoint.save_contents must name model, optimizer and extra)"));
    }
  }
  ASSIGN_OR_RETURN(const std::string text, checkpoint.ReadFile(kTrainingStateName));
  ASSIGN_OR_RETURN(const TrainingState state, ParseTrainingState(text));
  const TrainingData data = training_data();
  if (state.data.data_fingerprint != data.fingerprint) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " was made with other training data (files, tokenizer, template or length limits changed): its place in the "
        "data means "
        "nothing here. Restore them, or start a new run from the exported model with trainer.resume_mode=disable"));
  }
  if (state.data.permutation_seed != static_cast<uint64_t>(spec_.trainer().seed())) {
    return absl::InvalidArgumentError(absl::StrCat(path, " was made with trainer.seed=", state.data.permutation_seed,
                                                   ", the job has ", spec_.trainer().seed(),
                                                   ": the order of rows would change"));
  }
  // The cursor in rows; steps follow from it, so a changed batch size shows here.
  const int64_t step_in_epoch = state.step % data.steps_per_epoch;
  if (state.data.epoch != state.step / data.steps_per_epoch ||
      state.data.samples_into_epoch != std::min(data.rows, step_in_epoch * spec_.data().train_batch_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " was made with another data.train_batch_size: rows would be repeated or left out"));
  }
  {
    ASSIGN_OR_RETURN(const SafetensorsFile weights, checkpoint.OpenTensors(kWeightsName));
    const std::vector<TensorData> tensors = weights.Tensors();
    RETURN_IF_ERROR(Annotate(parameters_->ImportValues(tensors), weights.path()));
  }
  {
    ASSIGN_OR_RETURN(const SafetensorsFile optimizer, checkpoint.OpenTensors(kOptimizerName));
    const std::vector<TensorData> tensors = optimizer.Tensors();
    RETURN_IF_ERROR(Annotate(optimizer_->ImportState(tensors, state.counters.optimizer_updates), optimizer.path()));
  }
  RETURN_IF_ERROR(Annotate(RestoreExtraState(state.extra), path));
  steps_done_ = state.step;
  schedule_steps_ = state.schedule.next_update;
  counters_ = state.counters;
  return absl::OkStatus();
}

absl::Status ModelRole::Resume(v1::InitializeResult* result) {
  result->set_resume_reason("evaluation only");
  if (spec_.engine().forward_only()) return absl::OkStatus();

  // Rank 0 decides and tells: a listing may change between two looks.
  const std::string& folder = spec_.trainer().default_local_dir();
  ResumeDecision decision;
  absl::Status decided;
  if (options_.rank == 0) {
    decided = [&]() -> absl::Status {
      auto mode = ParseResumeMode(spec_.trainer().resume_mode());
      RETURN_IF_ERROR(mode.status());
      ASSIGN_OR_RETURN(decision, FindResume(PosixFileSystem(), folder, *mode, spec_.trainer().resume_from_path()));
      return absl::OkStatus();
    }();
  }
  RETURN_IF_ERROR(communicator_->Agree(decided));
  ASSIGN_OR_RETURN(const std::vector<std::string> told,
                   communicator_->AllGather(options_.rank == 0 ? Serialize(decision) : ""));
  const nlohmann::json message = nlohmann::json::parse(told[0]);
  const std::string path = message["path"];
  result->set_resume_reason(std::string(message["reason"]));
  RETURN_IF_ERROR(communicator_->Agree(path.empty() ? absl::OkStatus() : Restore(path)));
  result->set_resumed_step(steps_done_);

  absl::Status prepared;
  if (options_.rank == 0) {
    prepared = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(CheckpointStore store, OpenStore());
      ASSIGN_OR_RETURN(const std::vector<int64_t> aside, store.SetAsideNewerThan(path.empty() ? -1 : steps_done_));
      for (const int64_t step : aside) {
        LoggerFor("engine").Warning(absl::StrCat("checkpoint of step ", step, " in ", folder,
                                                 " is not part of this run: set aside, not deleted"));
      }
      RETURN_IF_ERROR(store.RemoveStale().status());
      ASSIGN_OR_RETURN(metrics_log_, MetricsLog::Open(MetricsPath(spec_.trainer()), steps_done_));
      return absl::OkStatus();
    }();
    prepared = Annotate(prepared, "trainer.default_local_dir");
  }
  return communicator_->Agree(prepared);
}

absl::StatusOr<v1::CheckpointResult> ModelRole::LoadCheckpoint(const v1::LoadCheckpointOp& op) {
  RETURN_IF_ERROR(RequireTrainable());
  const absl::Time start = absl::Now();
  RETURN_IF_ERROR(communicator_->Agree(Restore(op.path())));
  v1::CheckpointResult result;
  result.set_path(op.path());
  result.set_step(steps_done_);
  result.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  return result;
}

absl::StatusOr<int64_t> ModelRole::WriteHuggingFaceFolder(const std::string& path) {
  const std::string& wanted = spec_.checkpoint().export_dtype();
  const kernels::DType dtype = wanted == "fp32"   ? kernels::DType::kFloat32
                               : wanted == "bf16" ? kernels::DType::kBFloat16
                                                  : parameters_->config().storage_dtype;
  ASSIGN_OR_RETURN(const HostTensors weights, parameters_->ExportValues(dtype));
  std::vector<TensorSpec> specs;
  std::map<std::string, std::span<const std::byte>> bytes;
  int64_t total = 0;
  for (const TensorData& tensor : weights.tensors) {
    specs.push_back(tensor.spec);
    bytes[tensor.spec.name] = tensor.bytes;
    total += static_cast<int64_t>(tensor.bytes.size());
  }
  ModelFolderOptions options;
  options.max_shard_bytes = static_cast<int64_t>(spec_.checkpoint().max_shard_size_gb() * 1e9);
  options.companions_from = TokenizerFolder(spec_.model());
  options.replace = true;
  const TensorSource source = [&](const TensorSpec& spec) -> absl::StatusOr<std::span<const std::byte>> {
    return bytes[spec.name];
  };
  RETURN_IF_ERROR(WriteModelFolder(PosixFileSystem(), path, ExportConfigJson(parameters_->config(), dtype), specs,
                                   source, options));
  return total;
}

absl::StatusOr<v1::ExportWeightsResult> ModelRole::ExportWeights(const v1::ExportWeightsOp& op) {
  RETURN_IF_ERROR(RequireLoaded());
  absl::StatusOr<int64_t> bytes = 0;
  if (options_.rank == 0) bytes = WriteHuggingFaceFolder(op.path());
  RETURN_IF_ERROR(communicator_->Agree(Annotate(bytes.status(), absl::StrCat("export to ", op.path()))));
  v1::ExportWeightsResult result;
  result.set_path(op.path());
  result.set_bytes(*bytes);
  return result;
}

}  // namespace sluice::engine
