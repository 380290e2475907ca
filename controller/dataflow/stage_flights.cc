#include "controller/dataflow/stage_flights.h"

#include <utility>

namespace sluice::controller {

StageFlights::StageFlights(std::stop_token stop, const Clock* clock)
    : clock_(clock), forward_(std::move(stop), [this] { calls_.request_stop(); }) {}

StageFlights::~StageFlights() {
  Stop();
  threads_.clear();
}

void StageFlights::Launch(const Stage& stage, Call call) {
  const auto thread = threads_.emplace(threads_.end());
  *thread = std::jthread([this, stage, thread, call = std::move(call)] {
    const absl::Time began = clock_->Now();
    absl::StatusOr<v1::StageResponse> response = call(calls_.get_token());
    const absl::Time ended = clock_->Now();
    absl::MutexLock lock(&mutex_);
    ended_.push_back({{stage, std::move(response), began, ended}, thread});
    changed_.SignalAll();
  });
}

std::optional<StageFlights::Landed> StageFlights::Land(absl::Time deadline) {
  std::optional<Ended> first;
  {
    absl::MutexLock lock(&mutex_);
    while (ended_.empty() && clock_->Now() < deadline) {
      if (deadline == absl::InfiniteFuture()) {
        changed_.Wait(&mutex_);
      } else {
        clock_->WaitUntil(&mutex_, &changed_, deadline);
      }
    }
    if (ended_.empty()) return std::nullopt;
    first = std::move(ended_.front());
    ended_.pop_front();
  }
  threads_.erase(first->thread);
  return std::move(first->landed);
}

}  // namespace sluice::controller
