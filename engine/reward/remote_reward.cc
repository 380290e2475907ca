#include "engine/reward/remote_reward.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/grpc_channel.h"
#include "common/grpc_status.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "grpcpp/client_context.h"
#include "sluice/v1/reward.grpc.pb.h"

namespace sluice::engine {
namespace {

RewardError ErrorOf(v1::ScoreError::Kind kind) {
  switch (kind) {
    case v1::ScoreError::KIND_TIMEOUT:
      return RewardError::kTimeout;
    case v1::ScoreError::KIND_CRASHED:
      return RewardError::kCrashed;
    case v1::ScoreError::KIND_RAISED:
      return RewardError::kRaised;
    case v1::ScoreError::KIND_BAD_VALUE:
      return RewardError::kBadValue;
    default:
      return RewardError::kUnavailable;
  }
}

RewardResult ResultOf(const v1::ScoreResult& answer) {
  if (answer.outcome_case() == v1::ScoreResult::kError) {
    return RewardResult::Failed(ErrorOf(answer.error().kind()), answer.error().message());
  }
  if (answer.outcome_case() != v1::ScoreResult::kScore) {
    return RewardResult::Failed(RewardError::kBadValue, "the result has neither a score nor an error");
  }
  if (!std::isfinite(answer.score())) {
    return RewardResult::Failed(RewardError::kBadValue, absl::StrCat("the score is ", answer.score()));
  }
  RewardResult result = RewardResult::Scored(answer.score());
  for (const auto& [name, value] : answer.metrics()) {
    if (!std::isfinite(value)) {
      return RewardResult::Failed(RewardError::kBadValue, absl::StrCat("the metric ", name, " is ", value));
    }
    result.metrics[name] = value;
  }
  return result;
}

v1::ScoreRequest RequestOf(absl::Span<const RewardRequest> requests) {
  v1::ScoreRequest batch;
  for (const RewardRequest& request : requests) {
    v1::ScoreItem& item = *batch.add_items();
    item.set_data_source(request.data_source);
    item.set_solution(request.solution);
    item.set_ground_truth(request.ground_truth);
    item.set_extra_info_json(request.extra_info_json);
    item.set_response_tokens(request.response_tokens);
    item.set_truncated(request.truncated);
  }
  return batch;
}

bool IsWorthAnotherAttempt(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kResourceExhausted;
}

class RemoteReward : public Reward {
 public:
  RemoteReward(const RemoteRewardOptions& options, RemoteRewardWorld world)
      : options_(options), world_(std::move(world)), stub_(v1::RewardService::NewStub(MakeChannel(options.address))) {}

  absl::StatusOr<std::vector<RewardResult>> Score(absl::Span<const RewardRequest> requests) override {
    std::vector<RewardResult> results(requests.size());
    const size_t batch_size = static_cast<size_t>(options_.batch_size);
    const size_t batches = (requests.size() + batch_size - 1) / batch_size;
    std::atomic<size_t> next_batch = 0;
    absl::Mutex mutex;
    absl::Status refusal;
    const auto work = [&] {
      for (size_t batch = next_batch++; batch < batches; batch = next_batch++) {
        const size_t begin = batch * batch_size;
        const auto part = requests.subspan(begin, batch_size);  // shorter at the end
        const absl::Status status = ScoreBatch(part, absl::MakeSpan(results).subspan(begin, part.size()));
        if (status.ok()) continue;
        next_batch = batches;  // no use in asking further
        absl::MutexLock lock(&mutex);
        refusal.Update(status);
        return;
      }
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min<size_t>(options_.concurrency, batches); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    RETURN_IF_ERROR(refusal);
    return results;
  }

 private:
  // Fills `results`; an error where the service does not take such calls.
  absl::Status ScoreBatch(absl::Span<const RewardRequest> requests, absl::Span<RewardResult> results) {
    const v1::ScoreRequest batch = RequestOf(requests);
    absl::Status status;
    for (int attempt = 0; attempt < options_.max_attempts; ++attempt) {
      if (attempt > 0) world_.wait(BackoffBefore(attempt, options_, world_.uniform()));
      v1::ScoreResponse response;
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(options_.timeout));
      status = FromGrpcStatus(stub_->Score(&context, batch, &response));
      if (status.ok()) return Take(response, results);
      if (!IsWorthAnotherAttempt(status.code())) {
        return Annotate(status, absl::StrCat("reward service ", options_.address));
      }
    }
    const RewardError error =
        status.code() == absl::StatusCode::kDeadlineExceeded ? RewardError::kTimeout : RewardError::kUnavailable;
    const std::string message = absl::StrCat("reward service ", options_.address, " failed ", options_.max_attempts,
                                             " times, last with: ", std::string(status.message()));
    std::fill(results.begin(), results.end(), RewardResult::Failed(error, message));
    return absl::OkStatus();
  }

  absl::Status Take(const v1::ScoreResponse& response, absl::Span<RewardResult> results) const {
    if (static_cast<size_t>(response.results_size()) != results.size()) {
      return absl::InternalError(absl::StrCat("reward service ", options_.address, " gave ", response.results_size(),
                                              " results for ", results.size(), " items"));
    }
    for (size_t i = 0; i < results.size(); ++i) results[i] = ResultOf(response.results(static_cast<int>(i)));
    return absl::OkStatus();
  }

  const RemoteRewardOptions options_;
  const RemoteRewardWorld world_;
  const std::unique_ptr<v1::RewardService::Stub> stub_;
};

}  // namespace

RemoteRewardWorld RealRemoteRewardWorld() {
  const auto uniform = [] {
    // Not reproducible on purpose: clients that run in step are what the randomness is against.
    thread_local std::mt19937_64 generator{std::random_device{}()};
    return std::uniform_real_distribution<double>(0, 1)(generator);
  };
  return {uniform, [](absl::Duration duration) { absl::SleepFor(duration); }};
}

absl::Duration BackoffBefore(int attempt, const RemoteRewardOptions& options, double uniform) {
  // 2^40 of anything above a nanosecond is longer than any bound that makes sense.
  const absl::Duration doubled = options.initial_backoff * std::exp2(std::min(attempt - 1, 40));
  return uniform * std::min(options.max_backoff, doubled);
}

absl::StatusOr<std::unique_ptr<Reward>> MakeRemoteReward(const RemoteRewardOptions& options, RemoteRewardWorld world) {
  if (options.address.empty()) return absl::InvalidArgumentError("address: is empty, host:port or unix:path expected");
  const std::pair<const char*, int64_t> at_least_one[] = {
      {"max_attempts", options.max_attempts}, {"batch_size", options.batch_size}, {"concurrency", options.concurrency}};
  for (const auto& [name, value] : at_least_one) {
    if (value < 1) return absl::InvalidArgumentError(absl::StrCat(name, ": is ", value, ", at least 1 expected"));
  }
  return std::make_unique<RemoteReward>(options, std::move(world));
}

}  // namespace sluice::engine
