// PolicyRole: the stages that score answers, and the sum of what they say.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/rewards_from_spec.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/reward/reward_factory.h"
#include "engine/roles/policy_role.h"

namespace sluice::engine {
namespace {

absl::Status CheckSources(const PromptDataset& prompts, const Reward& reward, const char* key) {
  for (const std::string& source : prompts.data_sources()) {
    RETURN_IF_ERROR(Annotate(reward.CheckDataSource(source), key));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PolicyRole::OpenScorers() {
  for (const RewardStage& stage : RewardStagesOf(spec_)) {
    // A reward that cannot be made, or does not know the data, says so before the model is loaded.
    ASSIGN_OR_RETURN(const std::vector<RewardSpec> rewards, RewardsOfStage(stage));
    Scorer& scorer = scorers_.emplace_back();
    scorer.stage = stage.stage;
    if (!pool_.rollout) continue;
    const auto make_model = [&](const RewardSpec& spec) -> absl::StatusOr<std::unique_ptr<Reward>> {
      ASSIGN_OR_RETURN(std::unique_ptr<RewardModel> model,
                       RewardModel::Open(spec.options.at("path"), encoder_->tokenizer()));
      scorer.models.push_back(model.get());
      return model;
    };
    auto reward = MakeReward(rewards, make_model);
    RETURN_IF_ERROR(Annotate(reward.status(), stage.prefix + "reward"));
    scorer.reward = *std::move(reward);
    RETURN_IF_ERROR(CheckSources(*train_, *scorer.reward, "data.train_files"));
    if (validation_ != nullptr) RETURN_IF_ERROR(CheckSources(*validation_, *scorer.reward, "data.val_files"));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> PolicyRole::ScorerOf(const std::string& stage) const {
  for (size_t k = 0; k < scorers_.size(); ++k) {
    if (scorers_[k].stage == stage || scorers_.size() == 1) return k;
  }
  return absl::FailedPreconditionError(absl::StrCat("no stage of the job that scores is named ", stage));
}

absl::StatusOr<StageResults> PolicyRole::ScoreAnswers(const Scorer& scorer, const PromptDataset& prompts,
                                                      absl::Span<const Answer> answers, const std::string& prefix,
                                                      MetricSums* metrics) const {
  std::vector<RewardRequest> requests;
  for (const Answer& answer : answers) {
    const Prompt& prompt = prompts.prompt(answer.row);
    requests.push_back({prompt.data_source, answer.text, prompt.ground_truth, prompt.extra_info_json,
                        answer.response_tokens(), answer.truncated, *answer.prompt_ids, answer.response_ids});
  }
  auto results = scorer.reward->Score(requests);
  RETURN_IF_ERROR(Annotate(results.status(), "reward"));
  if (!judged_) return results;
  // Of several stages each has its numbers, and its errors, under its name.
  const bool several = scorers_.size() > 1;
  const std::string errors = absl::StrCat(prefix, "reward/", several ? scorer.stage + "/" : "", "errors/");
  const RewardResult* first_error = nullptr;
  for (RewardResult& result : *results) {
    if (several && result.score.has_value()) result.metrics.try_emplace(scorer.stage + "/score", *result.score);
    for (const auto& [name, value] : result.metrics) metrics->AddMean(absl::StrCat(prefix, "reward/", name), value);
    if (result.error == RewardError::kNone) continue;
    metrics->AddSum(absl::StrCat(errors, std::string(RewardErrorName(result.error))), 1);
    if (first_error == nullptr) first_error = &result;
  }
  if (first_error != nullptr) {
    const RewardErrorCounts counts = CountErrors(*results);
    const int64_t failed = static_cast<int64_t>(answers.size()) - counts[static_cast<size_t>(RewardError::kNone)];
    LoggerFor("engine").Warning(
        absl::StrCat(failed, " of ", answers.size(), " answers have no reward and are left out; the first: ",
                     std::string(RewardErrorName(first_error->error)), ": ", first_error->message));
  }
  return results;
}

absl::StatusOr<PolicyRole::Scored> PolicyRole::ScoreBatch(size_t scorer, absl::Span<const Answer> answers,
                                                          absl::Span<const Answer> baselines, Step* step,
                                                          Communicator& ranks) {
  Scored scored;
  const absl::Status local = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(scored.answers, ScoreAnswers(scorers_[scorer], *train_, answers, "", &scored.metrics));
    ASSIGN_OR_RETURN(scored.baselines,
                     ScoreAnswers(scorers_[scorer], *train_, baselines, "baseline/", &scored.metrics));
    return absl::OkStatus();
  }();
  RETURN_IF_ERROR(ranks.Agree(local));
  for (RewardModel* model : scorers_[scorer].models) step->flops += model->TakeFlops();
  return scored;
}

absl::Status PolicyRole::AddUpStages(absl::Span<const Scored> scored, absl::Span<Answer> answers,
                                     absl::Span<Answer> baselines, MetricSums* metrics) {
  std::vector<const StageResults*> of_answers, of_baselines;
  for (const Scored& stage : scored) {
    of_answers.push_back(&stage.answers);
    of_baselines.push_back(&stage.baselines);
  }
  absl::Status added = AddUpScores(of_answers, policy_.filter_metric, answers);
  added.Update(AddUpScores(of_baselines, /*filter_metric=*/"", baselines));
  RETURN_IF_ERROR(communicator_->Agree(added));
  for (const Answer& answer : answers) {
    if (judged_ && answer.score.has_value()) metrics->AddSpread("critic/score", *answer.score);
  }
  return absl::OkStatus();
}

absl::Status PolicyRole::ScoreStage(const std::string& stage, Step* step, Communicator& ranks) {
  ASSIGN_OR_RETURN(const size_t scorer, ScorerOf(stage));
  ASSIGN_OR_RETURN(step->scored[scorer], ScoreBatch(scorer, step->answers, step->baselines, step, ranks));
  return absl::OkStatus();
}

}  // namespace sluice::engine
