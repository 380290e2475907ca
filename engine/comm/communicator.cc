#include "engine/comm/communicator.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/comm/process_group_communicator.h"

namespace sluice::engine {
namespace {

// One rank has nobody to talk to: every operation's result is its input.
class SingleRankCommunicator : public Communicator {
 public:
  SingleRankCommunicator() : Communicator(0, 1) {}

 private:
  absl::Status DoBeginAllReduceSum(kernels::TensorView) override { return absl::OkStatus(); }
  absl::Status DoBeginAllGather(kernels::ConstTensorView, kernels::TensorView) override {
    return absl::FailedPreconditionError("all_gather of tensors in a world of one rank");
  }
  absl::Status DoBeginBroadcast(kernels::TensorView, int) override { return absl::OkStatus(); }
  absl::Status DoJoin() override { return absl::OkStatus(); }
  absl::Status DoWatchDevice() override { return absl::OkStatus(); }
  absl::Status DoDeviceStatus() const override { return absl::OkStatus(); }
  absl::Status DoAllReduce(absl::Span<double>, bool) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<std::string>> DoAllGather(const std::string& bytes) override {
    return std::vector<std::string>{bytes};
  }
};

// A status as one text, to send it to peers: the code in decimal, a blank, the message.
std::string Serialize(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ", status.message());
}

absl::Status Deserialize(const std::string& text) {
  const size_t blank = text.find(' ');
  return absl::Status(static_cast<absl::StatusCode>(std::stoi(text.substr(0, blank))), text.substr(blank + 1));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(const CommunicatorOptions& options) {
  if (options.world_size == 1) return std::make_unique<SingleRankCommunicator>();
  return ProcessGroupCommunicator::Connect(options);
}

CollectiveState Communicator::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

void Communicator::Enter(const char* name) {
  absl::MutexLock lock(&mutex_);
  ++state_.sequence;
  state_.name = name;
}

absl::Status Communicator::Leave(const absl::Status& status, int64_t bytes) const {
  if (status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  return Annotate(
      status, absl::StrCat("collective ", state_.sequence, " (", state_.name, ", ", bytes, " bytes) on rank ", rank_));
}

absl::Status Communicator::AllReduceSum(kernels::TensorView values) {
  Enter("all_reduce");
  return Leave(
      [&]() -> absl::Status {
        RETURN_IF_ERROR(DoBeginAllReduceSum(values));
        RETURN_IF_ERROR(DoJoin());
        return DoWatchDevice();
      }(),
      values.bytes());
}

absl::Status Communicator::BeginAllReduceSum(kernels::TensorView values) {
  Enter("all_reduce");
  return Leave(DoBeginAllReduceSum(values), values.bytes());
}

absl::Status Communicator::BeginAllGather(kernels::ConstTensorView mine, kernels::TensorView all) {
  Enter("all_gather");
  if (!mine.dense() || !all.dense() || mine.dtype != all.dtype || mine.device != all.device ||
      all.elements() != world_size_ * mine.elements()) {
    return Leave(
        absl::InvalidArgumentError("all_gather needs dense tensors of one type, one of the whole world's size"),
        mine.bytes());
  }
  return Leave(DoBeginAllGather(mine, all), mine.bytes());
}

absl::Status Communicator::Broadcast(kernels::TensorView values, int root) {
  Enter("broadcast");
  return Leave(
      [&]() -> absl::Status {
        if (!values.dense() || root < 0 || root >= world_size_) {
          return absl::InvalidArgumentError("broadcast needs a dense tensor and a root that is one of the ranks");
        }
        RETURN_IF_ERROR(DoBeginBroadcast(values, root));
        RETURN_IF_ERROR(DoJoin());
        return DoWatchDevice();
      }(),
      values.bytes());
}

absl::Status Communicator::Join() { return Leave(DoJoin(), 0); }

absl::Status Communicator::AllReduceSum(absl::Span<double> values) {
  Enter("all_reduce");
  return Leave(DoAllReduce(values, /*max=*/false), values.size() * sizeof(double));
}

absl::Status Communicator::AllReduceMax(absl::Span<double> values) {
  Enter("all_reduce_max");
  return Leave(DoAllReduce(values, /*max=*/true), values.size() * sizeof(double));
}

absl::StatusOr<std::vector<std::string>> Communicator::AllGather(const std::string& bytes) {
  Enter("all_gather");
  absl::StatusOr<std::vector<std::string>> gathered = DoAllGather(bytes);
  RETURN_IF_ERROR(Leave(gathered.status(), bytes.size()));
  return gathered;
}

absl::Status Communicator::Barrier() {
  Enter("barrier");
  double nothing = 0;
  return Leave(DoAllReduce(absl::MakeSpan(&nothing, 1), /*max=*/false), 0);
}

absl::Status Communicator::Agree(const absl::Status& local) {
  if (world_size_ == 1) return local;
  ASSIGN_OR_RETURN(const std::vector<std::string> outcomes, AllGather(Serialize(local)));
  for (int rank = 0; rank < world_size_; ++rank) {
    const absl::Status outcome = Deserialize(outcomes[rank]);
    if (!outcome.ok()) return Annotate(outcome, absl::StrCat("rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
