// The tokens of a mini-batch that policy losses clip_cov and kl_cov act on, over all ranks
// (engine/loss/covariance_selection.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/comm/communicator.h"
#include "engine/loss/covariance_selection.h"
#include "engine/loss/policy_loss.h"
#include "engine/roles/answer_batch.h"

namespace sluice::engine {

struct TokenSelectionOptions {
  PolicyLossMode mode = PolicyLossMode::kVanilla;
  ClipCovOptions clip_cov;
  double kl_cov_ratio = 0.0002;
};

// Sets Answer::selected of answers[chosen] from their old_log_prob, advantage, mask and `log_prob`, an array of theirs
// under the weights that the update starts from. Every rank has the same tokens selected however answers lie on ranks:
// all counted tokens of the mini-batch go to all ranks, 40 bytes each. `seed`: of clip_cov's draw. Collective.
// REQUIRES: a mode that needs a selection.
absl::Status SelectTokens(const TokenSelectionOptions& options, absl::Span<const int32_t> chosen,
                          std::vector<float> Answer::*log_prob, uint64_t seed, absl::Span<Answer> answers,
                          Communicator& communicator);

}  // namespace sluice::engine
