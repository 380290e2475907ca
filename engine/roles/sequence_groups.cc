#include "engine/roles/sequence_groups.h"

#include "engine/data/truncation.h"

namespace sluice::engine {

int64_t SequenceGroup::tokens() const {
  int64_t tokens = 0;
  for (const EncodedRow* row : sequences) tokens += static_cast<int64_t>(row->ids.size());
  return tokens;
}

int64_t SequenceGroup::scored_tokens() const {
  int64_t tokens = 0;
  for (const EncodedRow* row : sequences) tokens += ScorableTokens(*row);
  return tokens;
}

double SequenceGroup::squared_lengths() const {
  double sum = 0;
  for (const EncodedRow* row : sequences) sum += static_cast<double>(row->ids.size() * row->ids.size());
  return sum;
}

absl::StatusOr<BatchPlan> PlanGroups(absl::Span<const SequenceGroup> groups, int64_t world_size, int64_t token_slots) {
  std::vector<int64_t> lengths;
  lengths.reserve(groups.size());
  for (const SequenceGroup& group : groups) lengths.push_back(group.tokens());
  return PlanBatch(lengths, {.world_size = world_size, .max_tokens = token_slots});
}

PackedGroups PackGroups(absl::Span<const SequenceGroup> groups, absl::Span<const int32_t> chosen, int64_t token_slots) {
  PackedGroups packed;
  packed.groups.assign(chosen.begin(), chosen.end());
  std::vector<TokenSpan> spans;
  for (const int32_t place : chosen) {
    const SequenceGroup& group = groups[static_cast<size_t>(place)];
    for (const EncodedRow* row : group.sequences) {
      spans.push_back({row->ids.data(), row->mask.data(), static_cast<int64_t>(row->ids.size()), group.sample_id});
    }
  }
  packed.batch = PackMicroBatch(spans, token_slots);
  for (int64_t i = 0; i < packed.batch.sequences(); ++i) {
    const auto place = static_cast<size_t>(i);
    packed.sequences.push_back({packed.batch.cu_seqlens[place], packed.batch.cu_seqlens[place + 1],
                                static_cast<uint64_t>(packed.batch.sample_ids[place])});
  }
  packed.mask.reserve(packed.batch.labels.size());
  for (const int32_t label : packed.batch.labels) packed.mask.push_back(label != kIgnoreLabel);
  return packed;
}

std::vector<PreferencePair> PairsOf(const PackedGroups& packed) {
  std::vector<PreferencePair> pairs;
  for (int64_t i = 0; i < static_cast<int64_t>(packed.groups.size()); ++i) pairs.push_back({2 * i, 2 * i + 1});
  return pairs;
}

}  // namespace sluice::engine
