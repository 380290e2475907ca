// PolicyRole: groups that teach nothing, and others in their place.

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "common/status_macros.h"
#include "engine/advantage/dynamic_sampling.h"
#include "engine/comm/gather_values.h"
#include "engine/roles/policy_role.h"

namespace sluice::engine {
namespace {

// The groups of `answers`, which begin at place `first_place`, that answers tell apart.
FilteredGroups Filter(absl::Span<const Answer> answers) {
  std::vector<GroupMetric> groups;
  for (const Answer& answer : answers) groups.push_back({static_cast<uint64_t>(answer.place), answer.filter_value});
  return FilterGroups(groups);
}

absl::StatusOr<std::vector<uint64_t>> GatherPlaces(absl::Span<const uint64_t> own, Communicator& communicator) {
  ASSIGN_OR_RETURN(auto gathered, AllGatherValues<uint64_t>(own, communicator));
  std::sort(gathered.all.begin(), gathered.all.end());
  return std::move(gathered.all);
}

void Append(std::vector<Answer>&& from, std::vector<Answer>* to) {
  to->insert(to->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

absl::Status PolicyRole::FilterStage(Step* step) {
  if (policy_.filter_metric.empty()) return NotOfThisRecipe("filter");
  const size_t wanted = step->prompts.rows.size();
  const int64_t most = spec_.algorithm().filter_groups().max_num_gen_batches();
  const int64_t limit = most == 0 ? train_->steps_per_epoch() : most;
  const int64_t n = spec_.rollout().n();

  // Places go on from batch to batch, and `rows` with them.
  std::vector<int64_t> rows = step->prompts.rows;
  RETURN_IF_ERROR(
      AddUpStages(step->scored, absl::MakeSpan(step->answers), absl::MakeSpan(step->baselines), &step->metrics));
  FilteredGroups own = Filter(step->answers);
  int64_t dropped = static_cast<int64_t>(own.dropped.size());
  ASSIGN_OR_RETURN(std::vector<uint64_t> kept, GatherPlaces(own.kept, *communicator_));
  while (kept.size() < wanted && step->batches < limit) {
    ASSIGN_OR_RETURN(Generated further, GenerateBatch(step));
    const auto first_place = static_cast<int64_t>(rows.size());
    for (Answer& answer : further.answers) {
      answer.place += first_place;
      answer.sample += static_cast<uint64_t>(first_place * n);
    }
    for (Answer& answer : further.baselines) {
      answer.place += first_place;
      answer.sample += static_cast<uint64_t>(first_place);
    }
    std::vector<Scored> scored;
    for (size_t scorer = 0; scorer < scorers_.size(); ++scorer) {
      ASSIGN_OR_RETURN(scored.emplace_back(),
                       ScoreBatch(scorer, further.answers, further.baselines, step, *communicator_));
      step->scored[scorer].metrics.Merge(scored.back().metrics);
    }
    RETURN_IF_ERROR(
        AddUpStages(scored, absl::MakeSpan(further.answers), absl::MakeSpan(further.baselines), &step->metrics));
    own = Filter(further.answers);
    dropped += static_cast<int64_t>(own.dropped.size());
    ASSIGN_OR_RETURN(const std::vector<uint64_t> further_kept, GatherPlaces(own.kept, *communicator_));
    kept.insert(kept.end(), further_kept.begin(), further_kept.end());
    rows.insert(rows.end(), further.prompts.rows.begin(), further.prompts.rows.end());
    Append(std::move(further.answers), &step->answers);
    Append(std::move(further.baselines), &step->baselines);
  }
  const size_t found = kept.size();
  kept.resize(std::min(found, wanted));

  // The step goes on as if it had begun with these prompts.
  std::map<int64_t, int64_t> place_of;
  step->prompts.rows.clear();
  for (const uint64_t place : kept) {
    place_of[static_cast<int64_t>(place)] = static_cast<int64_t>(step->prompts.rows.size());
    step->prompts.rows.push_back(rows[place]);
  }
  const auto keep = [&](std::vector<Answer> answers, std::vector<Answer>* left_out) {
    std::vector<Answer> result;
    for (Answer& answer : answers) {
      const auto new_place = place_of.find(answer.place);
      answer.place = new_place == place_of.end() ? -1 : new_place->second;
      answer.learned = answer.place >= 0;
      if (answer.learned) {
        result.push_back(std::move(answer));
      } else if (left_out != nullptr) {
        left_out->push_back(std::move(answer));
      }
    }
    return result;
  };
  step->answers = keep(std::move(step->answers), &step->left_out);
  step->baselines = keep(std::move(step->baselines), nullptr);

  step->metrics.AddSum("training/filtered_groups", static_cast<double>(dropped));
  step->metrics.AddMax("training/gen_batches", static_cast<double>(step->batches));
  step->metrics.AddMax("training/surplus_groups", static_cast<double>(found - kept.size()));
  step->metrics.AddMax("training/missing_groups", static_cast<double>(wanted - kept.size()));
  if (kept.size() < wanted && options_.rank == 0) {
    LoggerFor("engine").Warning(absl::StrCat(
        "step ", step->step, " goes on with ", kept.size(), " of ", wanted, " groups: in the others of ", step->batches,
        " batches of prompts all answers are equally good",
        limit > 1 ? " (algorithm.filter_groups.max_num_gen_batches; are the prompts too easy, or too hard?)" : ""));
  }
  if (pool_.actor) return BalanceStep(step);
  // The answers that are left go on alone.
  const absl::Status dumped = DumpAnswers(step->step, {&step->left_out});
  step->left_out.clear();
  further_batches_ += step->batches - 1;
  last_filtered_ = {.step = step->step, .further_batches = step->batches - 1};
  return communicator_->Agree(dumped);
}

}  // namespace sluice::engine
