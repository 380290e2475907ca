// ModelRole: checkpoints and resume.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/failpoint.h"
#include "common/file_system.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_listing.h"
#include "engine/checkpoint/manifest.h"
#include "engine/roles/best_checkpoint.h"
#include "engine/roles/job_options.h"
#include "engine/roles/model_role.h"

namespace sluice::engine {
namespace {

// Names of a checkpoint's files; docs/checkpoint-format.md lists them.
constexpr char kWeightsName[] = "weights.safetensors";
constexpr char kOptimizerName[] = "optimizer.safetensors";

// What the names of a further model's files begin with, and the key of its optimizer's updates in the state.
std::string Prefix(const std::string& model) { return model + "_"; }
std::string UpdatesKey(const std::string& model) { return model + "_updates"; }

bool Contains(const google::protobuf::RepeatedPtrField<std::string>& list, const char* name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

// Rank 0's resume decision as text, for the other ranks: the path (empty: from the beginning) and the reason.
std::string Serialize(const ResumeDecision& decision) {
  return nlohmann::json({{"path", decision.checkpoint ? decision.checkpoint->path : ""}, {"reason", decision.reason}})
      .dump();
}

// The reverse of WriteModelFiles. `updates`: those that the optimizer had applied. `optimizer` null: the weights alone.
absl::Status ReadModelFiles(const Checkpoint& checkpoint, const std::string& prefix, int64_t updates,
                            Parameters* parameters, AdamWOptimizer* optimizer) {
  {
    ASSIGN_OR_RETURN(const SafetensorsFile weights, checkpoint.OpenTensors(prefix + kWeightsName));
    const std::vector<TensorData> tensors = weights.Tensors();
    RETURN_IF_ERROR(Annotate(parameters->ImportValues(tensors), weights.path()));
  }
  if (optimizer == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const SafetensorsFile state, checkpoint.OpenTensors(prefix + kOptimizerName));
  const std::vector<TensorData> tensors = state.Tensors();
  return Annotate(optimizer->ImportState(tensors, updates), state.path());
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
  options.merit = MeritBy(BestMetricOf(spec_.checkpoint()));
  options.attempt = attempt_name_;
  return CheckpointStore::Create(PosixFileSystem(), options);
}

void ModelRole::SetCursor(int64_t batches, DataCursor* cursor) const {
  const TrainingData data = training_data();
  cursor->epoch = batches / data.steps_per_epoch;
  cursor->samples_into_epoch = std::min(data.rows, batches % data.steps_per_epoch * spec_.data().train_batch_size());
}

absl::StatusOr<TrainingState> ModelRole::CurrentState() const {
  TrainingState state;
  state.step = steps_done_;
  state.extra = ExtraState();
  ASSIGN_OR_RETURN(const int64_t batches, BatchesTaken(state));
  SetCursor(batches, &state.data);
  const TrainingData data = training_data();
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
  for (const FurtherModel& further : FurtherModels()) {
    state.extra[UpdatesKey(further.name)] = absl::StrCat(further.optimizer->step_count());
  }
  return state;
}

absl::Status ModelRole::WriteCheckpointFiles(PendingCheckpoint* pending) {
  // Data-parallel ranks hold the same state: one of them writes it.
  if (options_.rank != 0) return absl::OkStatus();
  RETURN_IF_ERROR(WriteModelFiles("", *parameters_, *optimizer_, pending));
  for (const FurtherModel& further : FurtherModels()) {
    RETURN_IF_ERROR(WriteModelFiles(Prefix(further.name), *further.parameters, *further.optimizer, pending));
  }
  if (Contains(spec_.checkpoint().save_contents(), "extra")) {
    ASSIGN_OR_RETURN(const TrainingState state, CurrentState());
    ASSIGN_OR_RETURN(const std::string text, SerializeTrainingState(state));
    RETURN_IF_ERROR(pending->AddFile(kTrainingStateName, text));
  }
  return absl::OkStatus();
}

absl::Status ModelRole::WriteModelFiles(const std::string& prefix, const Parameters& parameters,
                                        const AdamWOptimizer& optimizer, PendingCheckpoint* pending) const {
  const auto& contents = spec_.checkpoint().save_contents();
  if (Contains(contents, "model")) {
    ASSIGN_OR_RETURN(const HostTensors weights, parameters.ExportValues(parameters.dtype()));
    RETURN_IF_ERROR(pending->AddTensors(prefix + kWeightsName, weights.tensors, {{"format", "pt"}}));
  }
  if (Contains(contents, "optimizer")) {
    ASSIGN_OR_RETURN(const std::vector<HostTensors> arrays, optimizer.ExportState());
    std::vector<TensorData> tensors;
    for (const HostTensors& array : arrays) tensors.insert(tensors.end(), array.tensors.begin(), array.tensors.end());
    RETURN_IF_ERROR(pending->AddTensors(prefix + kOptimizerName, tensors, {}));
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
      const bool validated = last_validation_.samples() > 0 && last_validation_.step() == op.step();
      const std::string metadata = CheckpointMetadata(spec_.recipe(), validated ? &last_validation_ : nullptr);
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
      ASSIGN_OR_RETURN(const auto best, FindBest(store, BestMetricOf(spec_.checkpoint())));
      if (best.has_value()) *result.mutable_best() = *best;
      result.set_path(committed->path);
      result.set_bytes(BytesOf(pending.entries()));
      if (Contains(spec_.checkpoint().save_contents(), "hf_model")) {
        ASSIGN_OR_RETURN(const int64_t exported, WriteHuggingFaceFolders(committed->path + "/huggingface"));
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
  const std::vector<FurtherModel> further_models = FurtherModels();
  std::vector<std::string> needed = {kWeightsName, kOptimizerName, kTrainingStateName};
  for (const FurtherModel& further : further_models) {
    needed.push_back(Prefix(further.name) + kWeightsName);
    needed.push_back(Prefix(further.name) + kOptimizerName);
  }
  for (const std::string& name : needed) {
    if (!checkpoint.Contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has no ", name,
                       ": a run cannot go on from it (checkpoint.save_contents must name model, optimizer and extra)",
                       further_models.empty() ? "" : ", nor this one from a run of another recipe"));
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
  // The cursor in rows; batches follow from it, so a changed batch size shows here.
  auto batches = BatchesTaken(state);
  RETURN_IF_ERROR(Annotate(batches.status(), path));
  DataCursor cursor = state.data;
  SetCursor(*batches, &cursor);
  if (cursor != state.data) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " was made with another data.train_batch_size: rows would be repeated or left out"));
  }
  if (has_policy()) {
    RETURN_IF_ERROR(
        ReadModelFiles(checkpoint, "", state.counters.optimizer_updates, parameters_.get(), optimizer_.get()));
  }
  for (const FurtherModel& further : further_models) {
    const auto found = state.extra.find(UpdatesKey(further.name));
    int64_t updates = 0;
    if (found == state.extra.end() || !absl::SimpleAtoi(found->second, &updates)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " has no ", UpdatesKey(further.name), " in its state"));
    }
    RETURN_IF_ERROR(ReadModelFiles(checkpoint, Prefix(further.name), updates, further.parameters, further.optimizer));
  }
  RETURN_IF_ERROR(Annotate(RestoreExtraState(state), path));
  last_validation_.Clear();  // it was of other weights
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
  RETURN_IF_ERROR(world_->Agree(decided));
  ASSIGN_OR_RETURN(const std::vector<std::string> told,
                   world_->AllGather(options_.rank == 0 ? Serialize(decision) : ""));
  const nlohmann::json message = nlohmann::json::parse(told[0]);
  const std::string path = message["path"];
  result->set_resume_reason(std::string(message["reason"]));
  RETURN_IF_ERROR(world_->Agree(path.empty() ? absl::OkStatus() : Restore(path)));
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
      ASSIGN_OR_RETURN(const auto best, FindBest(store, BestMetricOf(spec_.checkpoint())));
      if (best.has_value()) *result->mutable_best() = *best;
      ASSIGN_OR_RETURN(metrics_log_, MetricsLog::Open(MetricsPath(spec_.trainer()), steps_done_));
      return absl::OkStatus();
    }();
    prepared = Annotate(prepared, "trainer.default_local_dir");
  }
  return world_->Agree(prepared);
}

absl::Status ModelRole::NoteValidation(v1::ValidationMetrics* metrics) {
  last_validation_ = *metrics;
  const BestMetric metric = BestMetricOf(spec_.checkpoint());
  if (metric.name.empty() || spec_.engine().forward_only()) return absl::OkStatus();
  const std::optional<double> value = ValueOf(metric.name, *metrics);
  if (!value.has_value()) {
    if (metrics->metrics().contains(metric.name) || (metric.name == "val/loss" && metrics->has_loss())) {
      return absl::OkStatus();  // it is not finite
    }
    // Where rewards failed there are no scores this time.
    const bool has_results = metrics->has_loss() || metrics->metrics().contains("val/score/mean");
    if (!has_results) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("checkpoint.best_metric: a validation gives no number \"",
                                                   metric.name, "\"; it gives ", NamesOf(*metrics)));
  }
  if (options_.rank != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const CheckpointStore store, OpenStore());
  ASSIGN_OR_RETURN(const auto best, FindBest(store, metric));
  metrics->set_is_best(IsBetter(metric, *value, best));
  return absl::OkStatus();
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

}  // namespace sluice::engine
