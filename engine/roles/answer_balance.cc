#include "engine/roles/answer_balance.h"
#include "engine/comm/gather_values.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "common/status_macros.h"
#include "engine/data/rank_balance.h"
#include "engine/model/flops.h"
#include "engine/roles/answer_bytes.h"

namespace sluice::engine {
namespace {

// What all ranks know of an answer before they decide.
struct AnswerSize {
  int64_t place = 0;
  uint64_t sample = 0;
  int64_t tokens = 0;
  int64_t rank = 0;
};

absl::StatusOr<std::vector<AnswerSize>> GatherSizes(absl::Span<const Answer> answers, Communicator& communicator) {
  std::vector<AnswerSize> own;
  for (const Answer& answer : answers) {
    own.push_back({answer.place, answer.sample, answer.tokens(), communicator.rank()});
  }
  ASSIGN_OR_RETURN(auto gathered, AllGatherValues<AnswerSize>(own, communicator));
  std::vector<AnswerSize> all = std::move(gathered.all);
  // The order of the data, whoever generated what.
  std::sort(all.begin(), all.end(), [](const AnswerSize& a, const AnswerSize& b) {
    return std::tie(a.place, a.sample) < std::tie(b.place, b.sample);
  });
  return all;
}

double CostOf(const ModelConfig& model, int64_t tokens) {
  const auto length = static_cast<double>(tokens);
  return TrainingFlops(model, length, length * length);
}

int64_t MiniBatchOf(const AnswerBalanceOptions& options, const AnswerSize& size) {
  return options.mini_batch_of_place[static_cast<size_t>(size.place)];
}

std::vector<double> TokensOfRanks(absl::Span<const AnswerSize> sizes, absl::Span<const int64_t> rank_of,
                                  int64_t world) {
  std::vector<double> tokens(static_cast<size_t>(world), 0.0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    tokens[static_cast<size_t>(rank_of[i])] += static_cast<double>(sizes[i].tokens);
  }
  return tokens;
}

// Of the worst mini-batch.
double WorstImbalance(const AnswerBalanceOptions& options, absl::Span<const AnswerSize> sizes,
                      absl::Span<const int64_t> rank_of, int64_t world) {
  std::map<int64_t, std::vector<double>> costs;
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<double>& cost = costs[MiniBatchOf(options, sizes[i])];
    cost.resize(static_cast<size_t>(world), 0.0);
    cost[static_cast<size_t>(rank_of[i])] += CostOf(*options.model, sizes[i].tokens);
  }
  double worst = 1;
  for (const auto& [mini_batch, cost] : costs) worst = std::max(worst, Imbalance(cost));
  return worst;
}

std::vector<int64_t> Deal(const AnswerBalanceOptions& options, absl::Span<const AnswerSize> sizes, int64_t world) {
  std::vector<BalanceUnit> units;
  std::vector<size_t> unit_of;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool same_unit = options.keep_groups && i > 0 && sizes[i].place == sizes[i - 1].place;
    if (!same_unit) units.push_back({.mini_batch = MiniBatchOf(options, sizes[i]), .cost = 0});
    units.back().cost += CostOf(*options.model, sizes[i].tokens);
    unit_of.push_back(units.size() - 1);
  }
  const std::vector<int32_t> rank_of_unit = BalanceOverRanks(units, world);
  std::vector<int64_t> rank_of;
  rank_of.reserve(unit_of.size());
  for (const size_t unit : unit_of) rank_of.push_back(rank_of_unit[unit]);
  return rank_of;
}

// Leaves in `answers` those of this rank: `rank_of` says whose an answer is.
template <typename RankOf>
absl::Status Exchange(const RankOf& rank_of, const PromptDataset& prompts, Communicator& communicator,
                      std::vector<Answer>* answers) {
  std::vector<Answer> kept;
  std::string leaving;
  for (Answer& answer : *answers) {
    if (rank_of(answer) == communicator.rank()) {
      kept.push_back(std::move(answer));
    } else {
      AppendAnswer(answer, &leaving);
    }
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> moved, communicator.AllGather(leaving));
  for (int rank = 0; rank < communicator.world_size(); ++rank) {
    if (rank == communicator.rank()) continue;
    std::vector<Answer> arrived;
    RETURN_IF_ERROR(ParseAnswers(moved[static_cast<size_t>(rank)], &arrived));
    for (Answer& answer : arrived) {
      if (rank_of(answer) != communicator.rank()) continue;
      answer.prompt_ids = &prompts.prompt(answer.row).ids;
      kept.push_back(std::move(answer));
    }
  }
  std::sort(kept.begin(), kept.end(),
            [](const Answer& a, const Answer& b) { return std::tie(a.place, a.sample) < std::tie(b.place, b.sample); });
  *answers = std::move(kept);
  return absl::OkStatus();
}

}  // namespace

absl::Status BalanceAnswers(const AnswerBalanceOptions& options, const PromptDataset& prompts,
                            std::vector<Answer>* answers, std::vector<Answer>* baselines, Communicator& communicator,
                            MetricSums* metrics) {
  const int64_t world = communicator.world_size();
  ASSIGN_OR_RETURN(const std::vector<AnswerSize> sizes, GatherSizes(*answers, communicator));
  std::vector<int64_t> before;
  for (const AnswerSize& size : sizes) before.push_back(size.rank);
  const std::vector<int64_t> after = options.move && world > 1 ? Deal(options, sizes, world) : before;

  const std::vector<double> tokens_before = TokensOfRanks(sizes, before, world);
  const std::vector<double> tokens_after = TokensOfRanks(sizes, after, world);
  const auto [least, most] = std::minmax_element(tokens_before.begin(), tokens_before.end());
  const auto [least_after, most_after] = std::minmax_element(tokens_after.begin(), tokens_after.end());
  metrics->AddMin("global_seqlen/min", *least);
  metrics->AddMax("global_seqlen/max", *most);
  metrics->AddMax("global_seqlen/minmax_diff", *most - *least);
  metrics->AddMean("global_seqlen/mean", tokens_before[static_cast<size_t>(communicator.rank())]);
  metrics->AddMin("global_seqlen/balanced_min", *least_after);
  metrics->AddMax("global_seqlen/balanced_max", *most_after);
  metrics->AddMax("global_seqlen/imbalance", WorstImbalance(options, sizes, after, world));
  if (after == before) return absl::OkStatus();

  std::map<uint64_t, int64_t> rank_of_sample;
  std::map<int64_t, int64_t> rank_of_place;  // of its first answer: baselines go there
  for (size_t i = 0; i < sizes.size(); ++i) {
    rank_of_sample[sizes[i].sample] = after[i];
    rank_of_place.emplace(sizes[i].place, after[i]);
  }
  RETURN_IF_ERROR(
      Exchange([&](const Answer& answer) { return rank_of_sample.at(answer.sample); }, prompts, communicator, answers));
  return Exchange([&](const Answer& answer) { return rank_of_place.at(answer.place); }, prompts, communicator,
                  baselines);
}

}  // namespace sluice::engine
