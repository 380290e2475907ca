#include "tests/e2e/preference_job.h"

#include <nlohmann/json.hpp>

namespace sluice::testing {
namespace {

constexpr char kJob[] = R"(name: tiny-preference
data:
  max_length: 48
  train_batch_size: 6
  max_token_len_per_gpu: 128
engine: {device: cpu, cpu_threads: 1}
optim: {lr: 5e-3, lr_scheduler_type: constant, weight_decay: 0}
trainer: {total_training_steps: 5, save_freq: 1, seed: 7}
)";

std::string Line(const nlohmann::json& row) { return row.dump() + "\n"; }

}  // namespace

PreferenceJob::PreferenceJob() {
  for (const auto& [prefix, first, count] : {std::tuple("", 0, 20), std::tuple("val_", 50, 6)}) {
    std::string pairs, labelled;
    for (int i = first; i < first + count; ++i) {
      const std::string prompt = "Is " + std::to_string(i * 3) + " a number?";
      // Of several lengths, so that packing has something to do.
      const std::string chosen = "Yes, it is" + std::string(static_cast<size_t>(i % 5), '!');
      const std::string rejected = "No " + std::string(static_cast<size_t>(i % 3), 'o');
      pairs += Line({{"prompt", prompt}, {"chosen", chosen}, {"rejected", rejected}});
      labelled += Line({{"prompt", prompt}, {"completion", chosen}, {"label", true}});
      labelled += Line({{"prompt", prompt}, {"completion", rejected}, {"label", false}});
    }
    Write(std::string(prefix) + "pairs.jsonl", pairs);
    Write(std::string(prefix) + "labelled.jsonl", labelled);
  }
  Write("preference.yaml", kJob);
}

std::vector<std::string> PreferenceJob::Arguments(const std::string& recipe) const {
  const std::string rows = recipe == "kto" ? "labelled.jsonl" : "pairs.jsonl";
  return {Path("preference.yaml"), "recipe=" + recipe, "model={path: " + Path("model") + ", init: random}",
          "data.train_files=" + Path(rows), "data.val_files=" + Path("val_" + rows)};
}

CommandResult PreferenceJob::Run(const std::string& recipe, const std::string& run,
                                 const std::vector<std::string>& overrides, const Environment& environment) const {
  std::vector<std::string> arguments = Arguments(recipe);
  arguments.insert(arguments.begin(), "run");
  arguments.push_back("trainer.default_local_dir=" + Path(run));
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  return RunSluice(arguments, environment);
}

std::vector<std::map<std::string, double>> PreferenceJob::Steps(const std::string& run) const {
  return MetricLines(Contents(run + "/metrics.jsonl"), "train/loss");
}

std::vector<std::map<std::string, double>> PreferenceJob::Validations(const std::string& run) const {
  return MetricLines(Contents(run + "/metrics.jsonl"), "val/loss");
}

}  // namespace sluice::testing
