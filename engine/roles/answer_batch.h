// The answers of one step on one rank, as the stages of its data flow fill them in, and their way into micro-batches.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/data/micro_batch.h"
#include "engine/loss/token_batch.h"

namespace sluice::engine {

// Arrays of an answer are as long as response_ids once the stage that makes them has run; empty before.
struct Answer {
  int64_t place = 0;    // of its prompt among the step's; the answers to one prompt are a group
  int64_t row = 0;      // of its prompt in the data
  uint64_t sample = 0;  // its number in the step
  const std::vector<int32_t>* prompt_ids = nullptr;  // at least one
  std::vector<int32_t> response_ids;                 // at least one; the token that ended it included
  std::string text;
  bool truncated = false;  // it ended at the limit
  int64_t weight_version = 0;

  std::vector<float> rollout_log_prob;  // by the rollout engine
  std::optional<double> score;          // none: the reward failed
  std::optional<double> filter_value;   // algorithm.filter_groups.metric of it; where groups are filtered
  std::vector<double> components;       // the scores of several rewards, before their weights; empty where it failed
  std::string extracted;                // what the reward read out of the text; empty: nothing
  std::vector<float> old_log_prob;      // under the weights that the update starts from
  std::vector<float> ref_log_prob;      // under the reference model
  std::vector<float> value;             // what the critic expects in the state before each token
  std::vector<float> advantage;
  std::vector<float> returns;            // what it should have expected; with a critic
  std::vector<float> importance_weight;  // with a rollout correction
  std::vector<uint8_t> mask;             // 1 where a token counts: in no statistic and no loss if not; empty: all do
  std::vector<float> log_prob;           // under the weights that an update starts from; where one needs it
  std::vector<uint8_t> selected;         // by an update's loss, where it selects
  bool learned = true;                   // false: left out of the update (no score, or its group teaches nothing)

  int64_t tokens() const { return static_cast<int64_t>(prompt_ids->size() + response_ids.size()); }
  int64_t response_tokens() const { return static_cast<int64_t>(response_ids.size()); }
  bool Counts(size_t response_token) const { return mask.empty() || mask[response_token] != 0; }
  int64_t counted_tokens() const;
};

// Answers in one micro-batch. Slot begin + j of an answer's sequence predicts its response token j.
struct PackedAnswers {
  MicroBatch batch;
  std::vector<int32_t> answers;     // places in the span they were packed from, in the order of the sequences
  std::vector<Sequence> sequences;  // one for each: the slots that predict its response
  std::vector<uint8_t> mask;        // [T] Answer::mask of these slots; empty: all count

  TokenBatch tokens() const { return {sequences, batch.token_slots(), mask}; }
};

// Packs `answers[chosen]` into micro-batches of `token_slots` slots (batch_plan.h).
// InvalidArgument: an answer that does not fit.
absl::StatusOr<std::vector<PackedAnswers>> PackAnswers(absl::Span<const Answer> answers,
                                                       absl::Span<const int32_t> chosen, int64_t token_slots);

// All of them.
absl::StatusOr<std::vector<PackedAnswers>> PackAllAnswers(absl::Span<const Answer> answers, int64_t token_slots);

// `values` of the response tokens of the packed answers, slot by slot; 0 elsewhere. `array` is a member of Answer.
std::vector<float> BySlot(absl::Span<const Answer> answers, const PackedAnswers& packed,
                          std::vector<float> Answer::*array);
std::vector<uint8_t> BySlot(absl::Span<const Answer> answers, const PackedAnswers& packed,
                            std::vector<uint8_t> Answer::*array);

// The way back: what `by_slot` [T] says of each packed answer's response tokens.
void FromSlots(absl::Span<const float> by_slot, const PackedAnswers& packed, std::vector<float> Answer::*array,
               absl::Span<Answer> answers);

// All answers' response tokens one after another: for estimators, which see no prompts.
struct ResponseTokens {
  explicit ResponseTokens(absl::Span<const Answer> answers);
  // An array of the answers in this order.
  std::vector<float> Gather(absl::Span<const Answer> answers, std::vector<float> Answer::*array) const;
  void Scatter(absl::Span<const float> values, std::vector<float> Answer::*array, absl::Span<Answer> answers) const;
  void Scatter(absl::Span<const uint8_t> values, std::vector<uint8_t> Answer::*array, absl::Span<Answer> answers) const;
  TokenBatch batch() const { return {sequences, tokens, mask}; }

  std::vector<Sequence> sequences;  // one for each answer
  std::vector<uint8_t> mask;        // of all answers; empty: every token counts
  int64_t tokens = 0;
};

}  // namespace sluice::engine
