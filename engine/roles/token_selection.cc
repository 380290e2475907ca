#include "engine/roles/token_selection.h"
#include "engine/comm/gather_values.h"

#include <string>
#include <type_traits>
#include <vector>

#include "common/status_macros.h"

namespace sluice::engine {

static_assert(std::is_trivially_copyable_v<CovarianceToken> && sizeof(CovarianceToken) == 40,
              "it goes from rank to rank as bytes; ranks run the same program");

absl::Status SelectTokens(const TokenSelectionOptions& options, absl::Span<const int32_t> chosen,
                          std::vector<float> Answer::*log_prob, uint64_t seed, absl::Span<Answer> answers,
                          Communicator& communicator) {
  std::vector<CovarianceToken> own;
  for (const int32_t place : chosen) {
    const Answer& answer = answers[static_cast<size_t>(place)];
    for (size_t t = 0; t < answer.response_ids.size(); ++t) {
      if (!answer.Counts(t)) continue;
      own.push_back({.sample = answer.sample,
                     .token = static_cast<int64_t>(t),
                     .log_prob = (answer.*log_prob)[t],
                     .old_log_prob = answer.old_log_prob[t],
                     .advantage = answer.advantage[t]});
    }
  }
  ASSIGN_OR_RETURN(const auto gathered, AllGatherValues<CovarianceToken>(own, communicator));
  const auto& [all, own_begin] = gathered;
  const std::vector<uint8_t> selected = options.mode == PolicyLossMode::kKlCov
                                            ? SelectKlCov(options.kl_cov_ratio, all)
                                            : SelectClipCov(options.clip_cov, all, seed);
  size_t at = own_begin;
  for (const int32_t place : chosen) {
    Answer& answer = answers[static_cast<size_t>(place)];
    answer.selected.assign(answer.response_ids.size(), 0);
    for (size_t t = 0; t < answer.response_ids.size(); ++t) {
      if (answer.Counts(t)) answer.selected[t] = selected[at++];
    }
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
