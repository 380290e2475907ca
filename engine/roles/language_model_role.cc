#include "engine/roles/language_model_role.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/schedule_from_spec.h"
#include "common/config/steps.h"
#include "common/file_system.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/checkpoint_listing.h"
#include "engine/checkpoint/model_folder.h"
#include "engine/model/load_parameters.h"
#include "engine/roles/job_options.h"
#include "engine/roles/memory_check.h"

namespace sluice::engine {
namespace {

void Warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) LoggerFor("engine").Warning(warning);
}

}  // namespace

CollectiveState LanguageModelRole::collective_state() const {
  std::shared_ptr<Communicator> communicator;
  {
    absl::MutexLock lock(&communicator_mutex_);
    communicator = communicator_;
  }
  return communicator == nullptr ? CollectiveState() : communicator->state();
}

absl::Status LanguageModelRole::RequireLoaded() const {
  if (model_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("the engine is not initialised with a model");
}

absl::Status LanguageModelRole::RequireModel() const {
  RETURN_IF_ERROR(RequireLoaded());
  if (model_on_host_) return absl::FailedPreconditionError("the model is in host memory: move it back with `to` first");
  return absl::OkStatus();
}

absl::Status LanguageModelRole::RequireTrainer() const {
  if (optimizer_ != nullptr && train_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("the engine is not initialised for training");
}

absl::Status LanguageModelRole::RequireTrainable() const {
  RETURN_IF_ERROR(RequireTrainer());
  RETURN_IF_ERROR(RequireModel());
  if (!optimizer_on_host_ && !gradients_on_host_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the ",
                                                    optimizer_on_host_ ? "optimizer's state is" : "gradients are",
                                                    " in host memory: move it back with `to` first"));
}

absl::StatusOr<v1::ToResult> LanguageModelRole::To(const v1::ToOp& op) {
  if (op.device() != "cpu" && op.device() != "device") {
    return absl::InvalidArgumentError(absl::StrCat("to: device is `", op.device(), "`; it must be `cpu` or `device`"));
  }
  RETURN_IF_ERROR(RequireLoaded());
  v1::ToResult result;
  if (device_.is_cpu()) return result;
  const bool to_host = op.device() == "cpu";
  const kernels::Device destination = to_host ? kernels::Device::Cpu() : device_;
  ahead_.reset();  // its gradients may go
  const auto move = [&](bool wanted, bool* on_host, int64_t bytes, auto&& mover) -> absl::Status {
    if (!wanted || *on_host == to_host) return absl::OkStatus();
    RETURN_IF_ERROR(mover(destination));
    *on_host = to_host;
    result.set_bytes(result.bytes() + bytes);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(move(op.model(), &model_on_host_, parameters_->values().bytes(),
                       [&](kernels::Device to) { return parameters_->MoveValues(to); }));
  RETURN_IF_ERROR(move(op.grad() && parameters_->has_gradients(), &gradients_on_host_, parameters_->gradients().bytes(),
                       [&](kernels::Device to) { return parameters_->MoveGradients(to); }));
  RETURN_IF_ERROR(move(op.optimizer() && optimizer_ != nullptr, &optimizer_on_host_,
                       optimizer_ == nullptr ? 0 : optimizer_->bytes(),
                       [&](kernels::Device to) { return optimizer_->Move(to); }));
  // What came back lies elsewhere.
  model_->ForgetRecorded();
  return result;
}

absl::Status LanguageModelRole::Connect(const v1::InitializeOp& op) {
  if (parameters_ != nullptr || train_ != nullptr)
    return absl::FailedPreconditionError("the engine is initialised already");
  spec_ = op.spec();
  attempt_name_ = absl::StrCat(op.job_id().empty() ? "local" : op.job_id(), "-", op.attempt());
  ASSIGN_OR_RETURN(device_, ChooseDevice(spec_.engine().device()));
  CommunicatorOptions options;
  options.rank = options_.rank;
  options.world_size = op.world_size();
  options.rendezvous = op.rendezvous_address();
  options.host = options_.host;
  options.device = device_;
  options.timeout = absl::Seconds(spec_.engine().collective_timeout_s());
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, Communicator::Create(options));
  absl::MutexLock lock(&communicator_mutex_);
  communicator_ = std::move(communicator);
  return absl::OkStatus();
}

absl::Status LanguageModelRole::OpenModel() {
  ASSIGN_OR_RETURN(const std::string overrides, OverrideJson(spec_.model()));
  auto config = LoadModelConfig(ConfigFolder(spec_.model()), overrides);
  RETURN_IF_ERROR(Annotate(config.status(), "model"));
  RETURN_IF_ERROR(Annotate(CheckVocabularySize(*config, encoder_->tokenizer().vocab_size()), "model.path"));
  ParametersOptions options;
  options.dtype = DTypeOf(spec_.engine());
  options.device = device_;
  options.gradients = !spec_.engine().forward_only();
  if (device_.is_cuda()) {
    RowLengths rows;
    if (train_ != nullptr) {
      const TokenStats& stats = train_->stats();
      rows = {stats.longest_row, static_cast<double>(stats.tokens) / static_cast<double>(stats.rows_kept)};
    }
    // The optimizer is made where there is data to train on.
    RETURN_IF_ERROR(CheckFreeMemory(NeedsOnCuda(spec_, *config, /*optimizer=*/train_ != nullptr, rows), spec_));
  }
  if (spec_.model().init() == "random") {
    ASSIGN_OR_RETURN(parameters_,
                     Parameters::CreateRandom(*config, options, static_cast<uint64_t>(spec_.trainer().seed())));
  } else {
    auto folder = ModelFolder::Open(PosixFileSystem(), spec_.model().path());
    RETURN_IF_ERROR(Annotate(folder.status(), "model.path"));
    std::vector<std::string> warnings;
    auto loaded = LoadParameters(*config, options, *folder, warnings);
    RETURN_IF_ERROR(Annotate(loaded.status(), "model.path"));
    parameters_ = *std::move(loaded);
    Warn(warnings);
  }
  RETURN_IF_ERROR(ApplyGemmTuning(spec_, device_));
  ASSIGN_OR_RETURN(model_, CausalLm::Create(parameters_.get(), ModelOptions(spec_)));
  return absl::OkStatus();
}

absl::Status LanguageModelRole::OpenData() {
  ASSIGN_OR_RETURN(DatasetOptions train_options, TrainDatasetOptions(spec_));
  ASSIGN_OR_RETURN(train_, Dataset::Open(train_options, *encoder_, PosixFileSystem()));
  if (!spec_.data().val_files().empty()) {
    ASSIGN_OR_RETURN(DatasetOptions validation_options, ValidationDatasetOptions(spec_));
    ASSIGN_OR_RETURN(validation_, Dataset::Open(validation_options, *encoder_, PosixFileSystem()));
  }
  return absl::OkStatus();
}

absl::Status LanguageModelRole::MakeTrainer() {
  total_steps_ = TotalSteps(spec_.trainer(), train_->steps_per_epoch());
  if (spec_.engine().forward_only()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Schedule schedule, Schedule::Create(ScheduleFromSpec(spec_.optim()), total_steps_));
  schedule_ = std::make_unique<Schedule>(std::move(schedule));
  ASSIGN_OR_RETURN(optimizer_, AdamWOptimizer::Create(parameters_.get(), OptimizerOptions(spec_)));
  return absl::OkStatus();
}

absl::StatusOr<v1::InitializeResult> LanguageModelRole::Initialize(const v1::InitializeOp& op) {
  RETURN_IF_ERROR(Connect(op));
  const bool with_model = op.scope() != v1::INITIALIZE_SCOPE_DATA;
  const bool with_data = op.scope() != v1::INITIALIZE_SCOPE_MODEL;
  const bool for_training = with_model && with_data;
  const absl::Status opened = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const LossOn loss_on, ParseLossOn(spec_.data().loss_on()));
    ASSIGN_OR_RETURN(
        encoder_, ChatRowEncoder::Load(TokenizerFolder(spec_.model()), spec_.model().custom_chat_template(), loss_on));
    // Data first: it is quick to find wrong, a model is slow to load.
    if (with_data) RETURN_IF_ERROR(OpenData());
    if (with_model) RETURN_IF_ERROR(OpenModel());
    if (for_training) RETURN_IF_ERROR(MakeTrainer());
    return absl::OkStatus();
  }();
  RETURN_IF_ERROR(communicator_->Agree(opened));

  v1::InitializeResult result;
  result.set_device(kernels::Name(device_));
  if (with_model) result.set_parameters(parameters_->layout().parameter_count());
  if (with_data) {
    const TokenStats& stats = train_->stats();
    result.set_steps_per_epoch(train_->steps_per_epoch());
    result.set_total_steps(TotalSteps(spec_.trainer(), train_->steps_per_epoch()));
    result.set_train_rows(stats.rows_kept);
    result.set_dropped_rows(stats.rows_dropped);
    result.set_truncated_rows(stats.rows_truncated);
    result.set_train_tokens(stats.tokens);
    result.set_train_scored_tokens(stats.scored_tokens);
    if (validation_ != nullptr) result.set_val_rows(validation_->rows());
  }
  if (op.scope() == v1::INITIALIZE_SCOPE_DATA) {
    const int64_t ranks = int64_t{spec_.trainer().nnodes()} * spec_.trainer().n_gpus_per_node();
    for (int64_t step = 0; step < train_->steps_per_epoch(); ++step) {
      ASSIGN_OR_RETURN(const StepBatches batches, train_->MicroBatchesForStep(step, 0, ranks));
      result.set_epoch_micro_batches(result.epoch_micro_batches() +
                                     static_cast<int64_t>(batches.micro_batches.size()) * ranks);
    }
  }
  if (for_training) RETURN_IF_ERROR(Resume(&result));
  result.set_nonfinite_steps_total(counters_.skipped_updates);
  return result;
}

}  // namespace sluice::engine
