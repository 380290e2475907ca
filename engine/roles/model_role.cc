#include "engine/roles/model_role.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/recipes.h"
#include "common/config/schedule_from_spec.h"
#include "common/config/steps.h"
#include "common/file_system.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/checkpoint_listing.h"
#include "engine/roles/job_options.h"
#include "engine/roles/memory_check.h"
#include "engine/roles/open_parameters.h"
#include "engine/roles/reference_model.h"

namespace sluice::engine {
namespace {

// As the controller waits for a validation (controller/dataflow/attempt_options.h).
constexpr absl::Duration kLongestWait = absl::Hours(12);

void Warn(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) LoggerFor("engine").Warning(warning);
}

}  // namespace

CollectiveState ModelRole::collective_state() const {
  std::shared_ptr<Communicator> communicator;
  {
    absl::MutexLock lock(&communicator_mutex_);
    communicator = communicator_;
  }
  return communicator == nullptr ? CollectiveState() : communicator->state();
}

absl::Status ModelRole::RequireLoaded() const {
  if (model_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("the engine is not initialised with a model");
}

absl::Status ModelRole::RequireModel() const {
  RETURN_IF_ERROR(RequireLoaded());
  if (model_on_host_) return absl::FailedPreconditionError("the model is in host memory: move it back with `to` first");
  return absl::OkStatus();
}

absl::Status ModelRole::RequireTrainer() const {
  if (optimizer_ != nullptr && training_data().rows > 0) return absl::OkStatus();
  return absl::FailedPreconditionError("the engine is not initialised for training");
}

absl::Status ModelRole::RequireTrainable() const {
  RETURN_IF_ERROR(RequireTrainer());
  RETURN_IF_ERROR(RequireModel());
  if (!optimizer_on_host_ && !gradients_on_host_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the ",
                                                    optimizer_on_host_ ? "optimizer's state is" : "gradients are",
                                                    " in host memory: move it back with `to` first"));
}

absl::StatusOr<v1::ToResult> ModelRole::To(const v1::ToOp& op) {
  if (op.device() != "cpu" && op.device() != "device") {
    return absl::InvalidArgumentError(absl::StrCat("to: device is `", op.device(), "`; it must be `cpu` or `device`"));
  }
  RETURN_IF_ERROR(RequireLoaded());
  v1::ToResult result;
  if (device_.is_cpu()) return result;
  // The role's own model, and those that are trained beside it.
  std::vector<FurtherModel> models = FurtherModels();
  models.push_back({"", parameters_.get(), model_.get(), optimizer_.get()});
  const bool to_host = op.device() == "cpu";
  const kernels::Device destination = to_host ? kernels::Device::Cpu() : device_;
  ForgetAhead();  // its gradients may go
  const auto move = [&](bool wanted, bool* on_host, auto&& bytes, auto&& mover) -> absl::Status {
    if (!wanted || *on_host == to_host) return absl::OkStatus();
    for (const FurtherModel& model : models) {
      RETURN_IF_ERROR(mover(model));
      result.set_bytes(result.bytes() + bytes(model));
    }
    *on_host = to_host;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(move(
      op.model(), &model_on_host_, [](const FurtherModel& model) { return model.parameters->values().bytes(); },
      [&](const FurtherModel& model) { return model.parameters->MoveValues(destination); }));
  RETURN_IF_ERROR(move(
      op.grad() && parameters_->has_gradients(), &gradients_on_host_,
      [](const FurtherModel& model) { return model.parameters->gradients().bytes(); },
      [&](const FurtherModel& model) { return model.parameters->MoveGradients(destination); }));
  RETURN_IF_ERROR(move(
      op.optimizer() && optimizer_ != nullptr, &optimizer_on_host_,
      [](const FurtherModel& model) { return model.optimizer->bytes(); },
      [&](const FurtherModel& model) { return model.optimizer->Move(destination); }));
  // What came back lies elsewhere.
  for (const FurtherModel& model : models) model.model->ForgetRecorded();
  return result;
}

absl::Status ModelRole::Connect(const v1::InitializeOp& op) {
  if (parameters_ != nullptr || training_data().rows > 0)
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
  // Looking at a model or at data is for one process, whatever pools the job has.
  const bool has_pools =
      op.scope() == v1::INITIALIZE_SCOPE_UNSPECIFIED && IsPolicyRecipe(spec_.recipe()) && spec_.pools_size() > 1;
  if (has_pools) return ConnectPool(options);
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, Communicator::Create(options));
  {
    absl::MutexLock lock(&communicator_mutex_);
    communicator_ = std::move(communicator);
    world_ = communicator_;
  }
  return ConnectFurther(options);
}

absl::Status ModelRole::ConnectPool(const CommunicatorOptions& world) {
  pool_ = PoolOfRank(PoolsOf(spec_), options_.rank);
  // What all ranks have to say to each other is in host memory. Ranks of one pool may wait for the work of another's:
  // for a whole validation. A peer that is gone they notice at once.
  CommunicatorOptions all = world;
  all.device = kernels::Device::Cpu();
  all.timeout = std::max(all.timeout, kLongestWait);
  ASSIGN_OR_RETURN(std::shared_ptr<Communicator> everyone, Communicator::Create(all));
  CommunicatorOptions peers = world;
  peers.group = absl::StrCat("pool.", pool_.name);
  peers.rank = options_.rank - static_cast<int>(pool_.first_rank);
  peers.world_size = static_cast<int>(pool_.ranks);
  ASSIGN_OR_RETURN(std::shared_ptr<Communicator> pool, Communicator::Create(peers));
  {
    absl::MutexLock lock(&communicator_mutex_);
    communicator_ = std::move(pool);
    world_ = std::move(everyone);
  }
  return ConnectFurther(world);
}

absl::Status ModelRole::OpenModel() {
  if (!has_policy()) {
    RETURN_IF_ERROR(ApplyGemmTuning(spec_, device_));
    return OpenRest();
  }
  ASSIGN_OR_RETURN(const ModelConfig config, TrainedModelConfig(spec_));
  RETURN_IF_ERROR(Annotate(CheckVocabularySize(config, encoder_->tokenizer().vocab_size()), "model.path"));
  if (device_.is_cuda()) {
    // The optimizer is made where there is data to train on.
    const bool with_optimizer = training_data().rows > 0 && trains();
    std::optional<ModelConfig> reference;
    if (ComparesWithAnother(spec_)) {
      ASSIGN_OR_RETURN(reference, ReferenceConfig(spec_));
    }
    v1::JobSpec here = spec_;
    if (!pool_.actor && !pool_.reference) here.mutable_engine()->set_forward_only(true);
    MemoryNeeds needs =
        NeedsOnCuda(here, config, with_optimizer, row_lengths(), reference.has_value() ? &*reference : nullptr);
    if (!pool_.actor) needs.gradients = needs.optimizer = 0;
    if (!pool_.reference) needs.reference = 0;
    RETURN_IF_ERROR(CheckFreeMemory(needs, spec_, device_));
  }
  std::vector<std::string> warnings;
  if (device_.is_cuda() && trains() && spec_.engine().model_dtype() == "fp32") {
    warnings.push_back(
        "engine.model_dtype fp32 is many times slower on a GPU than bf16, which keeps exact fp32 masters");
  }
  const ParametersOptions options = ParametersOptionsOf(spec_, device_, trains());
  ASSIGN_OR_RETURN(parameters_, OpenParameters(spec_.model(), "model.path", config, options, warnings));
  Warn(warnings);
  RETURN_IF_ERROR(ApplyGemmTuning(spec_, device_));
  ASSIGN_OR_RETURN(model_, CausalLm::Create(parameters_.get(), model_options()));
  return OpenRest();
}

absl::Status ModelRole::MakeTrainer() {
  total_steps_ = TotalSteps(spec_.trainer(), training_data().steps_per_epoch);
  if (!trains()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Schedule schedule, Schedule::Create(ScheduleFromSpec(spec_.optim()), total_steps_));
  schedule_ = std::make_unique<Schedule>(std::move(schedule));
  ASSIGN_OR_RETURN(optimizer_, AdamWOptimizer::Create(parameters_.get(), OptimizerOptions(spec_)));
  return absl::OkStatus();
}

CausalLmOptions ModelRole::model_options() const { return ModelOptions(spec_); }

absl::StatusOr<v1::InitializeResult> ModelRole::Initialize(const v1::InitializeOp& op) {
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
  RETURN_IF_ERROR(world_->Agree(opened));

  v1::InitializeResult result;
  result.set_device(kernels::Name(device_));
  if (parameters_ != nullptr) result.set_parameters(parameters_->layout().parameter_count());
  if (with_data) {
    result.set_steps_per_epoch(training_data().steps_per_epoch);
    result.set_total_steps(TotalSteps(spec_.trainer(), training_data().steps_per_epoch));
    RETURN_IF_ERROR(FillDataCounts(op.scope() == v1::INITIALIZE_SCOPE_DATA, &result));
  }
  if (for_training) RETURN_IF_ERROR(Resume(&result));
  result.set_nonfinite_steps_total(counters_.skipped_updates);
  return result;
}

}  // namespace sluice::engine
