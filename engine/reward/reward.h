// How good a response is: the interface of every reward, native, Python or remote.
//
//   ASSIGN_OR_RETURN(auto reward, MakeReward({{.kind = "gsm8k"}}));  // reward_factory.h
//   ASSIGN_OR_RETURN(std::vector<RewardResult> results, reward->Score(requests));
//   const RewardErrorCounts errors = CountErrors(results);
//
// A response without a score is an error with a kind and a message, counted apart. It is never a score of 0: a reward
// that hangs or raises must not teach the model that its answer was wrong.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace sluice::engine {

struct RewardRequest {
  std::string data_source;                             // which data set the prompt is from, such as "openai/gsm8k"
  std::string solution;                                // the response's text, without the prompt
  std::string ground_truth;                            // what a right response says; empty where the row has none
  std::string extra_info_json;                         // a JSON object with what else the row holds; empty: none
  int64_t response_tokens = 0;                         // tokens of the response, with its end mark
  bool truncated = false;                              // the response ended at the length limit
  absl::Span<const int32_t> prompt_ids, response_ids;  // their tokens, not owned; empty where they are not known
};

enum class RewardError {
  kNone,         // there is a score
  kTimeout,      // no answer in time; what computed it was killed
  kCrashed,      // the process that computed it ended
  kRaised,       // the user's function raised an exception
  kBadValue,     // the answer is no number: NaN, infinite, or of another type
  kUnavailable,  // the service or process that computes it cannot be reached or started
};
inline constexpr int kRewardErrors = 6;

// "none", "timeout", "crashed", "raised", "bad_value", "unavailable": the names in metrics.
std::string_view RewardErrorName(RewardError error);

struct RewardResult {
  std::optional<double> score;            // finite; absent exactly where `error` is not kNone
  std::map<std::string, double> metrics;  // further numbers by name, all finite; empty where there is an error
  std::vector<double> components;         // of a weighted sum: the score of each part, before its weight
  std::string extracted;  // what was read out of the response and compared ("18"); empty: nothing, or not told
  RewardError error = RewardError::kNone;
  std::string message;  // of the error: what happened, and the last lines of a traceback

  static RewardResult Scored(double score, std::map<std::string, double> metrics = {});
  static RewardResult Failed(RewardError error, std::string message);
};

// Thread-safe: Score may be called from any thread; calls of rewards with processes of their own may wait for each
// other.
class Reward {
 public:
  virtual ~Reward() = default;

  // One result for each request, in their order, whatever finishes first. A status that is not OK means that no request
  // can be scored (a data source that no rule knows, a service that refuses the call): the job cannot go on as it is
  // configured. What befalls one request is in its result.
  virtual absl::StatusOr<std::vector<RewardResult>> Score(absl::Span<const RewardRequest> requests) = 0;

  // kInvalidArgument where Score would refuse a request from this data source; asked for each source of the training
  // data before training starts.
  virtual absl::Status CheckDataSource(std::string_view data_source) const;
};

// How many results have each error, by the enum's number.
using RewardErrorCounts = std::array<int64_t, kRewardErrors>;
RewardErrorCounts CountErrors(absl::Span<const RewardResult> results);

}  // namespace sluice::engine
