#include "tools/cli/progress_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "tools/cli/output.h"

namespace sluice::cli {
namespace {

constexpr int kBarWidth = 20;
constexpr int kShortestBar = 5;

struct Field {
  std::string text;
  int importance;  // the lowest is left out first
};

// In the order they are shown.
std::vector<Field> StepFields(const v1::StepMetrics& step) {
  std::vector<Field> fields = {{absl::StrFormat("loss %.4f", step.loss()), 6},
                               {absl::StrFormat("grad_norm %.3g", step.grad_norm()), 3},
                               {absl::StrFormat("lr %.3g", step.lr()), 2}};
  if (const auto score = step.metrics().find("critic/score/mean"); score != step.metrics().end()) {
    fields.insert(fields.begin(), {absl::StrFormat("score %.4f", score->second), 8});
  }
  if (const auto accuracy = step.metrics().find("rewards/accuracies"); accuracy != step.metrics().end()) {
    fields.insert(fields.begin() + 1, {absl::StrFormat("accuracy %.3f", accuracy->second), 5});
  }
  if (step.seconds() > 0) {
    fields.push_back({absl::StrFormat("tokens/s %.0f", static_cast<double>(step.tokens()) / step.seconds()), 4});
    fields.push_back({absl::StrFormat("TFLOP/s %.3g", step.model_flops() / step.seconds() / 1e12), 1});
  }
  if (step.skipped_nonfinite()) fields.push_back({"(skipped: not finite)", 7});
  return fields;
}

void AddTimeLeft(const v1::Progress& progress, std::vector<Field>* fields) {
  if (!progress.has_eta_seconds()) return;
  fields->push_back({absl::StrCat("left ", ShortDuration(absl::Seconds(progress.eta_seconds()))), 5});
}

std::string Join(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) absl::StrAppend(&text, "  ", field.text);
  return text;
}

// Leaves the least important fields out until the rest fits.
void FitFields(size_t columns, std::vector<Field>* fields) {
  while (!fields->empty() && Join(*fields).size() > columns) {
    fields->erase(std::min_element(fields->begin(), fields->end(),
                                   [](const Field& a, const Field& b) { return a.importance < b.importance; }));
  }
}

}  // namespace

std::string EventLine(const v1::WatchJobResponse& update) {
  const v1::JobEvent& event = update.event();
  if (event.warning()) return absl::StrCat("warning: ", event.message());
  switch (event.detail_case()) {
    case v1::JobEvent::kStep: {
      std::vector<Field> fields = StepFields(event.step());
      AddTimeLeft(update.job().progress(), &fields);
      return absl::StrCat("step ", event.step().step(), "/", update.job().progress().total_steps(), Join(fields));
    }
    case v1::JobEvent::kValidation:
      if (const auto score = event.validation().metrics().find("val/score/mean");
          score != event.validation().metrics().end()) {
        return absl::StrFormat("validation after step %d  score %.4f  (%d answers, %s)", event.validation().step(),
                               score->second, event.validation().samples(),
                               ShortDuration(absl::Seconds(event.validation().seconds())));
      }
      if (!event.validation().has_loss()) {
        return absl::StrFormat("validation after step %d  none of the %d answers has a score  (%s)",
                               event.validation().step(), event.validation().samples(),
                               ShortDuration(absl::Seconds(event.validation().seconds())));
      }
      return absl::StrFormat("validation after step %d  loss %.4f  (%d rows, %d scored tokens, %s)",
                             event.validation().step(), event.validation().loss(), event.validation().samples(),
                             event.validation().scored_tokens(),
                             ShortDuration(absl::Seconds(event.validation().seconds())));
    case v1::JobEvent::kCheckpointStep:
      return absl::StrCat("checkpoint of step ", event.checkpoint_step(), " committed");
    case v1::JobEvent::DETAIL_NOT_SET:
      break;
  }
  return absl::StrCat(update.job().job_id(), " ", StateName(event.state()), event.message().empty() ? "" : ": ",
                      event.message());
}

std::string ProgressBar(const v1::Progress& progress, int columns) {
  const int64_t total = std::max<int64_t>(1, progress.total_steps());
  const std::string numbers = absl::StrCat(progress.step(), "/", progress.total_steps());
  std::string bar;
  const int width = std::min<int>(kBarWidth, columns - static_cast<int>(numbers.size()) - 3);
  if (width >= kShortestBar) {
    const int filled = static_cast<int>(std::min(progress.step(), total) * width / total);
    bar = absl::StrCat("[", std::string(filled, '='));
    if (filled < width) absl::StrAppend(&bar, ">", std::string(width - filled - 1, ' '));
    bar += "] ";
  }
  bar += numbers;
  std::vector<Field> fields;
  if (progress.has_last_step()) fields = StepFields(progress.last_step());
  AddTimeLeft(progress, &fields);
  const size_t room = static_cast<size_t>(std::max(0, columns));
  FitFields(room - std::min(room, bar.size()), &fields);
  return absl::StrCat(bar, Join(fields)).substr(0, room);
}

std::string EraseBar(size_t length, int columns) {
  const size_t rows_above = length == 0 ? 0 : (length - 1) / static_cast<size_t>(columns);
  std::string text = "\r";
  if (rows_above > 0) absl::StrAppend(&text, "\033[", rows_above, "A");
  return text + "\033[J";
}

std::string BestCheckpointText(const v1::Job& job) {
  return absl::StrFormat("%s/global_step_%d (%s %.6g)", job.spec().trainer().default_local_dir(),
                         job.progress().best_checkpoint_step(), job.spec().checkpoint().best_metric(),
                         job.progress().best_checkpoint_value());
}

std::string Summary(const v1::Job& job) {
  std::string text = absl::StrCat(job.job_id(), " ", StateName(job.state()));
  if (job.state() == v1::JOB_STATE_FAILED) {
    return absl::StrCat(text, " (",
                        absl::StripPrefix(v1::FailureReason_Name(job.failure().reason()), "FAILURE_REASON_"),
                        "): ", job.failure().message());
  }
  if (job.state() == v1::JOB_STATE_CANCELLED && !job.status_message().empty())
    absl::StrAppend(&text, ": ", job.status_message());
  const v1::Progress& progress = job.progress();
  absl::StrAppend(&text, " after ", progress.step(), " steps");
  const auto append_validation = [&](const char* what, bool has_first, double first, bool has_last, double last) {
    if (has_first && has_last && job.state() == v1::JOB_STATE_SUCCEEDED) {
      absl::StrAppendFormat(&text, "\nvalidation %s %.4f before, %.4f after", what, first, last);
    } else if (has_last) {
      absl::StrAppendFormat(&text, "\nvalidation %s %.4f", what, last);
    }
  };
  append_validation("loss", progress.has_first_val_loss(), progress.first_val_loss(), progress.has_last_val_loss(),
                    progress.last_val_loss());
  append_validation("score", progress.has_first_val_score(), progress.first_val_score(), progress.has_last_val_score(),
                    progress.last_val_score());
  if (progress.has_best_checkpoint_step()) absl::StrAppend(&text, "\nbest checkpoint: ", BestCheckpointText(job));
  if (!job.output_path().empty()) absl::StrAppend(&text, "\nmodel: ", job.output_path());
  return text;
}

}  // namespace sluice::cli
