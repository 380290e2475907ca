#include "tests/e2e/tiny_job.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace sluice::testing {
namespace {

constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 704, "hidden_size": 32,
  "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
  "max_position_embeddings": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "hidden_act": "silu",
  "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false, "initializer_range": 0.05, "torch_dtype": "float32"
})";

constexpr char kTokenizerConfig[] = R"({
  "eos_token": "<|im_end|>",
  "chat_template": "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
})";

constexpr char kJob[] = R"(name: tiny
model: {path: MODEL, init: random}
data:
  train_files: TRAIN
  val_files: VALIDATION
  format: gsm8k
  max_length: 128
  train_batch_size: 5
  max_token_len_per_gpu: 128
  cache_dir: CACHE
engine: {device: cpu, cpu_threads: 1}
optim: {lr: 1e-2, lr_warmup_steps: 2}
trainer: {total_epochs: 2, save_freq: 1, seed: 7}
)";

std::string Replace(std::string text, const std::string& word, const std::string& by) {
  text.replace(text.find(word), word.size(), by);
  return text;
}

// Long enough that two of them never fit into one micro-batch of 128 slots.
std::string Rows(int first, int count) {
  std::string rows;
  for (int i = first; i < first + count; ++i) {
    std::string steps;
    for (int j = 0; j < 4; ++j)
      steps += std::to_string(i * 7 + j) + " + " + std::to_string(j * 3 + i % 5) + " = " +
               std::to_string(i * 8 + j * 4) + ". ";
    rows += nlohmann::json({{"question", "What is " + std::to_string(i) + " and " + std::to_string(i * i) + "?"},
                            {"answer", steps + "#### " + std::to_string(i + i * i)}})
                .dump() +
            "\n";
  }
  return rows;
}

}  // namespace

TinyJob::TinyJob() {
  Write("model/config.json", kConfig);
  Write("model/tokenizer_config.json", kTokenizerConfig);
  std::filesystem::copy_file("tests/golden/tokenizer/qwen2_style.tokenizer.json", Path("model/tokenizer.json"));
  Write("train.jsonl", Rows(0, 20));
  Write("val.jsonl", Rows(100, 6));
  std::string job = kJob;
  job = Replace(job, "MODEL", Path("model"));
  job = Replace(job, "TRAIN", Path("train.jsonl"));
  job = Replace(job, "VALIDATION", Path("val.jsonl"));
  job = Replace(job, "CACHE", Path("cache"));
  Write("job.yaml", job);
}

std::vector<std::string> TinyJob::Arguments(const std::string& run, const std::vector<std::string>& overrides) const {
  std::vector<std::string> arguments = {Path("job.yaml"), "trainer.default_local_dir=" + Path(run)};
  arguments.insert(arguments.end(), overrides.begin(), overrides.end());
  return arguments;
}

CommandResult TinyJob::Run(const std::string& run, const std::vector<std::string>& overrides,
                           const Environment& environment) const {
  std::vector<std::string> arguments = Arguments(run, overrides);
  arguments.insert(arguments.begin(), "run");
  return RunSluice(arguments, environment);
}

std::string TinyJob::Contents(const std::string& name) const {
  std::ifstream in(Path(name), std::ios::binary);
  std::stringstream contents;
  if (in) contents << in.rdbuf();
  return contents.str();
}

bool TinyJob::Exists(const std::string& name) const { return std::filesystem::exists(Path(name)); }

std::vector<std::map<std::string, double>> MetricLines(const std::string& metrics_jsonl, const std::string& with_key) {
  std::vector<std::map<std::string, double>> lines;
  std::istringstream in(metrics_jsonl);
  for (std::string line; std::getline(in, line);) {
    std::map<std::string, double> numbers;
    const nlohmann::json parsed = nlohmann::json::parse(line);
    for (const auto& [name, value] : parsed.items()) {
      if (value.is_number()) numbers[name] = value;
    }
    if (numbers.contains(with_key)) lines.push_back(std::move(numbers));
  }
  return lines;
}

std::vector<double> StepLosses(const std::string& metrics_jsonl) {
  std::vector<double> losses;
  std::istringstream in(metrics_jsonl);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json parsed = nlohmann::json::parse(line);
    if (parsed.contains("train/loss")) losses.push_back(parsed["train/loss"]);
  }
  return losses;
}

}  // namespace sluice::testing
