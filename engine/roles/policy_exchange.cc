// PolicyRole: what goes between pools: samples and weights.

#include <arrow/api.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/failpoint.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/device/engine_stream.h"
#include "engine/roles/answer_columns.h"
#include "engine/roles/policy_role.h"

namespace sluice::engine {
namespace {

// Longer than any stage may take (controller/dataflow/attempt_options.h): what a reader has not come for by then, it
// will not.
constexpr absl::Duration kLease = absl::Hours(12);

constexpr int64_t kMegabyte = 1'000'000;

const Clock& WallClock() {
  static const RealClock clock;
  return clock;
}

}  // namespace

absl::Status PolicyRole::ConnectFurther(const CommunicatorOptions& world) {
  CommunicatorOptions beside = world;
  beside.group = absl::StrCat("beside.", pool_.name);
  beside.rank = communicator_->rank();
  beside.world_size = communicator_->world_size();
  beside.device = kernels::Device::Cpu();
  ASSIGN_OR_RETURN(beside_, Communicator::Create(beside));
  if (world_ == communicator_) return absl::OkStatus();

  const Pool rollout = RolloutPool(PoolsOf(spec_));
  if (!rollout.actor && (options_.rank == 0 || pool_.rollout)) {
    CommunicatorOptions weights = world;
    weights.group = "weights";
    weights.rank = options_.rank == 0 ? 0 : 1 + options_.rank - static_cast<int>(rollout.first_rank);
    weights.world_size = 1 + static_cast<int>(rollout.ranks);
    ASSIGN_OR_RETURN(weights_, Communicator::Create(weights));
  }
  kept_ = std::make_unique<BatchStore>(&WallClock(), kLease);
  ASSIGN_OR_RETURN(batches_, BatchServer::Start(options_.host, kept_.get()));
  return absl::OkStatus();
}

absl::Status PolicyRole::CheckStaleness(absl::Span<const Answer> answers) const {
  const int64_t oldest = steps_done_ - MostStaleness(spec_.rollout());
  for (const Answer& answer : answers) {
    if (answer.weight_version >= oldest && answer.weight_version <= steps_done_) continue;
    return absl::FailedPreconditionError(absl::StrCat("answers of weights of version ", answer.weight_version,
                                                      " are to train those of ", steps_done_, "; rollout.mode ",
                                                      spec_.rollout().mode(), " trains on none older than ", oldest));
  }
  return absl::OkStatus();
}

absl::StatusOr<ColumnsOrigin> PolicyRole::TakeBatch(const arrow::RecordBatch& batch, const std::string& stage,
                                                    Step* step) {
  if (OpOf(batch) != "reward") return TakeColumns(batch, *train_, &step->answers, &step->baselines);
  ASSIGN_OR_RETURN(const size_t scorer, ScorerOf(stage));
  Scored& scored = step->scored[scorer];
  std::vector<Answer> answers = WithScoresOf(scored.answers, step->answers);
  std::vector<Answer> baselines = WithScoresOf(scored.baselines, step->baselines);
  ASSIGN_OR_RETURN(ColumnsOrigin origin, TakeColumns(batch, *train_, &answers, &baselines));
  scored.answers = ScoresOf(answers);
  scored.baselines = ScoresOf(baselines);
  return origin;
}

RowChoice PolicyRole::RowsOfThisRank(const Step& step) const {
  RowChoice choice;
  if (!step.dealt_anew) {
    choice.part = communicator_->rank();
    choice.parts = communicator_->world_size();
    return choice;
  }
  choice.parts = 0;
  for (const Answer& answer : step.answers) choice.places.push_back(answer.place);
  choice.places.erase(std::unique(choice.places.begin(), choice.places.end()), choice.places.end());
  return choice;
}

absl::StatusOr<PolicyRole::FetchedStage> PolicyRole::FetchStage(const v1::DataflowOp& op, int begin, int end,
                                                                Step* step) {
  FetchedStage stage;
  for (int i = begin; i < end; ++i) {
    const v1::BatchReference& input = op.inputs(i);
    if (input.step() != op.step()) {
      return absl::FailedPreconditionError(
          absl::StrCat(op.op(), " of step ", op.step(), " is given samples of step ", input.step()));
    }
    auto fetched = FetchBatch(input.address(), input.id(), RowsOfThisRank(*step),
                              absl::Seconds(spec_.engine().collective_timeout_s()));
    RETURN_IF_ERROR(Annotate(fetched.status(), absl::StrCat("what ", input.stage(), " of step ", op.step(),
                                                            " made on rank ", input.rank())));
    ASSIGN_OR_RETURN(const ColumnsOrigin origin, TakeBatch(*fetched->batch, input.stage(), step));
    if (pool_.actor) RETURN_IF_ERROR(CheckStaleness(step->answers));
    stage.bytes += fetched->bytes;
    stage.answers = origin.op == "generate" || origin.op == "filter";
    // Numbers are of the whole batch, whoever has which part of its rows: they count where the step ends, and once.
    if (pool_.actor && communicator_->rank() == 0) step->metrics.Merge(origin.metrics);
    NoteDone(origin.op, input.stage(), step);
    if (origin.op != "filter") continue;
    // It leaves answers with their scores.
    step->prompts.rows = origin.prompt_rows;
    step->batches = origin.prompt_batches;
    absl::MutexLock lock(&steps_mutex_);
    step->done.insert({"generate", "reward"});
  }
  return stage;
}

absl::StatusOr<int64_t> PolicyRole::FetchInputs(const v1::DataflowOp& op, Step* step, Communicator& ranks) {
  int64_t bytes = 0;
  for (int begin = 0, end = 0; begin < op.inputs_size(); begin = end) {
    while (end < op.inputs_size() && op.inputs(end).stage() == op.inputs(begin).stage()) ++end;
    const absl::StatusOr<FetchedStage> fetched = FetchStage(op, begin, end, step);
    RETURN_IF_ERROR(ranks.Agree(fetched.status()));
    bytes += fetched->bytes;
    // What follows is fetched for the answers that this rank then has.
    if (fetched->answers && pool_.actor) RETURN_IF_ERROR(BalanceStep(step));
  }
  step->metrics.AddSum(absl::StrCat("dataflow/received_bytes/", op.stage()), static_cast<double>(bytes));
  return bytes;
}

absl::Status PolicyRole::KeepOutputs(const v1::DataflowOp& op, double seconds, Step* step, v1::DataflowResult* result) {
  Scored* scored = nullptr;
  if (op.op() == "reward") {
    ASSIGN_OR_RETURN(const size_t scorer, ScorerOf(op.stage()));
    scored = &step->scored[scorer];
  }
  MetricSums& metrics = scored != nullptr ? scored->metrics : step->metrics;
  const bool one_of_several = scored != nullptr && scorers_.size() > 1;
  metrics.AddMax(absl::StrCat(kSecondsOf, op.op(), one_of_several ? "/" + op.stage() : ""), seconds);
  if (op.readers() == 0) return absl::OkStatus();
  if (!HasColumns(op.op())) return absl::InternalError(absl::StrCat(op.op(), " makes nothing for other pools"));
  if (!op.beside()) {
    metrics.AddSum("flops", step->flops);
    step->flops = 0;
  }
  ColumnsOrigin origin = {.op = op.op(), .metrics = metrics, .prompt_rows = {}, .prompt_batches = 0};
  if (op.op() == "filter") {
    for (const Scored& of_stage : step->scored) origin.metrics.Merge(of_stage.metrics);
    origin.prompt_rows = step->prompts.rows;
    origin.prompt_batches = step->batches;
  }
  absl::StatusOr<std::shared_ptr<arrow::RecordBatch>> made;
  if (scored != nullptr) {
    made = ColumnsOf(origin, WithScoresOf(scored->answers, step->answers),
                     WithScoresOf(scored->baselines, step->baselines));
  } else {
    made = ColumnsOf(origin, step->answers, step->baselines);
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<arrow::RecordBatch> batch, std::move(made));
  // They count where the batch goes. Where the step ends here, it is this rank that they come back to.
  if (!pool_.actor) metrics = MetricSums();
  v1::BatchReference* reference = result->add_outputs();
  reference->set_step(op.step());
  reference->set_stage(op.stage());
  reference->set_rank(options_.rank);
  reference->set_address(batches_->address());
  reference->set_id(kept_->Keep(op.step(), batch, op.readers()));
  reference->set_rows(batch->num_rows());
  for (const auto& column : batch->columns()) {
    for (const auto& buffer : column->data()->buffers)
      reference->set_bytes(reference->bytes() + (buffer ? buffer->size() : 0));
  }
  reference->set_weight_version(step->answers.empty() ? op.weight_version() : step->answers[0].weight_version);
  return absl::OkStatus();
}

absl::StatusOr<v1::DataflowResult> PolicyRole::SyncWeights(const v1::DataflowOp& op) {
  RETURN_IF_ERROR(RequireModel());
  if (weights_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("weight_sync is asked of rank ", options_.rank,
                                                      ", which neither has the weights for others nor waits for them"));
  }
  if (pool_.actor && op.weight_version() != steps_done_) {
    return absl::FailedPreconditionError(absl::StrCat("weights of version ", op.weight_version(),
                                                      " are asked for, but ", steps_done_, " steps are done"));
  }
  if (op.weight_version() < steps_done_) {
    return absl::FailedPreconditionError(
        absl::StrCat("weights of version ", op.weight_version(), " would follow those of ", steps_done_));
  }
  const absl::Time start = absl::Now();
  const kernels::TensorView values = parameters_->values();
  const int64_t elements = values.shape[0];
  const int64_t bucket = spec_.rollout().update_weights_bucket_megabytes() * kMegabyte / kernels::SizeOf(values.dtype);
  for (int64_t begin = 0; begin < elements; begin += bucket) {
    RETURN_IF_ERROR(weights_->Broadcast(values.Rows(begin, std::min(elements, begin + bucket)), /*root=*/0));
    Failpoint("engine.weight_bucket");
  }
  // Only issued so far, on a GPU. The stage's time is the transfer's, and a peer that is gone is named by this stage.
  RETURN_IF_ERROR(Synchronize(device_));
  RETURN_IF_ERROR(weights_->device_status());
  v1::DataflowResult result;
  result.set_step(op.step());
  result.set_stage(op.stage());
  if (!pool_.actor) {
    steps_done_ = op.weight_version();
    result.set_received_bytes(values.bytes());
  }
  result.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  if (pool_.actor) weight_sync_seconds_ = result.seconds();
  return result;
}

}  // namespace sluice::engine
