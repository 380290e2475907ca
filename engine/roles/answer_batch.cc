#include "engine/roles/answer_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/status_macros.h"
#include "engine/data/batch_plan.h"

namespace sluice::engine {

namespace {

bool AnyMasked(absl::Span<const Answer> answers) {
  return std::any_of(answers.begin(), answers.end(), [](const Answer& answer) { return !answer.mask.empty(); });
}

template <typename T>
std::vector<T> LayBySlot(absl::Span<const Answer> answers, const PackedAnswers& packed, std::vector<T> Answer::*array) {
  std::vector<T> slots(packed.batch.input_ids.size(), T{0});
  for (size_t i = 0; i < packed.answers.size(); ++i) {
    const std::vector<T>& values = answers[packed.answers[i]].*array;
    std::copy(values.begin(), values.end(), slots.begin() + packed.sequences[i].begin);
  }
  return slots;
}

}  // namespace

int64_t Answer::counted_tokens() const {
  return mask.empty() ? response_tokens() : std::count_if(mask.begin(), mask.end(), [](uint8_t m) { return m != 0; });
}

absl::StatusOr<std::vector<PackedAnswers>> PackAnswers(absl::Span<const Answer> answers,
                                                       absl::Span<const int32_t> chosen, int64_t token_slots) {
  std::vector<PackedAnswers> packed;
  if (chosen.empty()) return packed;
  std::vector<int64_t> lengths;
  for (const int32_t place : chosen) lengths.push_back(answers[place].tokens());
  ASSIGN_OR_RETURN(const BatchPlan plan, PlanBatch(lengths, {.world_size = 1, .max_tokens = token_slots}));
  for (const std::vector<int32_t>& micro_batch : plan.ranks[0]) {
    if (micro_batch.empty()) continue;
    PackedAnswers& result = packed.emplace_back();
    std::vector<std::vector<int32_t>> ids;
    std::vector<std::vector<uint8_t>> masks;
    int64_t begin = 0;
    for (const int32_t place : micro_batch) {
      const Answer& answer = answers[chosen[place]];
      const auto prompt_tokens = static_cast<int64_t>(answer.prompt_ids->size());
      ids.push_back(*answer.prompt_ids);
      ids.back().insert(ids.back().end(), answer.response_ids.begin(), answer.response_ids.end());
      masks.emplace_back(ids.back().size(), 1);
      std::fill_n(masks.back().begin(), prompt_tokens, 0);
      result.answers.push_back(chosen[place]);
      // The slot before a token predicts it.
      const int64_t first = begin + prompt_tokens - 1;
      result.sequences.push_back({first, first + answer.response_tokens(), answer.sample});
      begin += answer.tokens();
    }
    std::vector<TokenSpan> spans;
    for (size_t i = 0; i < ids.size(); ++i) {
      spans.push_back(
          {ids[i].data(), masks[i].data(), static_cast<int64_t>(ids[i].size()), answers[result.answers[i]].row});
    }
    result.batch = PackMicroBatch(spans, token_slots);
    if (!AnyMasked(answers)) continue;
    result.mask.assign(static_cast<size_t>(token_slots), 0);
    for (size_t i = 0; i < result.answers.size(); ++i) {
      const Answer& answer = answers[result.answers[i]];
      for (size_t t = 0; t < answer.response_ids.size(); ++t) {
        result.mask[static_cast<size_t>(result.sequences[i].begin) + t] = answer.Counts(t);
      }
    }
  }
  return packed;
}

absl::StatusOr<std::vector<PackedAnswers>> PackAllAnswers(absl::Span<const Answer> answers, int64_t token_slots) {
  std::vector<int32_t> all(answers.size());
  std::iota(all.begin(), all.end(), 0);
  return PackAnswers(answers, all, token_slots);
}

std::vector<float> BySlot(absl::Span<const Answer> answers, const PackedAnswers& packed,
                          std::vector<float> Answer::*array) {
  return LayBySlot(answers, packed, array);
}

std::vector<uint8_t> BySlot(absl::Span<const Answer> answers, const PackedAnswers& packed,
                            std::vector<uint8_t> Answer::*array) {
  return LayBySlot(answers, packed, array);
}

void FromSlots(absl::Span<const float> by_slot, const PackedAnswers& packed, std::vector<float> Answer::*array,
               absl::Span<Answer> answers) {
  for (size_t i = 0; i < packed.answers.size(); ++i) {
    const Sequence& sequence = packed.sequences[i];
    (answers[packed.answers[i]].*array).assign(by_slot.begin() + sequence.begin, by_slot.begin() + sequence.end);
  }
}

ResponseTokens::ResponseTokens(absl::Span<const Answer> answers) {
  for (const Answer& answer : answers) {
    sequences.push_back({tokens, tokens + answer.response_tokens(), answer.sample});
    tokens += answer.response_tokens();
  }
  if (!AnyMasked(answers)) return;
  for (const Answer& answer : answers) {
    for (size_t t = 0; t < answer.response_ids.size(); ++t) mask.push_back(answer.Counts(t));
  }
}

std::vector<float> ResponseTokens::Gather(absl::Span<const Answer> answers, std::vector<float> Answer::*array) const {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(tokens));
  for (const Answer& answer : answers) values.insert(values.end(), (answer.*array).begin(), (answer.*array).end());
  return values;
}

void ResponseTokens::Scatter(absl::Span<const float> values, std::vector<float> Answer::*array,
                             absl::Span<Answer> answers) const {
  for (size_t i = 0; i < answers.size(); ++i) {
    (answers[i].*array).assign(values.begin() + sequences[i].begin, values.begin() + sequences[i].end);
  }
}

void ResponseTokens::Scatter(absl::Span<const uint8_t> values, std::vector<uint8_t> Answer::*array,
                             absl::Span<Answer> answers) const {
  for (size_t i = 0; i < answers.size(); ++i) {
    (answers[i].*array).assign(values.begin() + sequences[i].begin, values.begin() + sequences[i].end);
  }
}

}  // namespace sluice::engine
