// Rows per second from a jsonl file of questions and answers to the tokenised cache, by threads, and micro-batches per
// second from the cache. Uses a small tokenizer of the goldens, or the model folder in SLUICE_MODEL; the word problems,
// or the file in SLUICE_DATA.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/testing/temp_dir.h"
#include "engine/data/chat_row_encoder.h"
#include "engine/data/dataset.h"

namespace sluice::engine {
namespace {

std::string Variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

DatasetOptions Options(const std::string& cache_dir, int threads) {
  DatasetOptions options;
  options.files = {Variable("SLUICE_DATA", "configs/data/word_problems/train.jsonl")};
  options.cache_dir = cache_dir;
  options.max_length = 8192;
  options.threads = threads;
  options.batch_size = 256;
  return options;
}

std::unique_ptr<ChatRowEncoder> Encoder(const testing::TempDir& temp) {
  std::string folder = Variable("SLUICE_MODEL", "");
  if (folder.empty()) {
    folder = temp.path();
    std::filesystem::copy_file("tests/golden/tokenizer/qwen2_style.tokenizer.json", temp.Join("tokenizer.json"));
    temp.Write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
    temp.Write("chat_template.jinja",
               "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
  }
  return ChatRowEncoder::Load(folder, "", LossOn::kAssistant).value();
}

void Tokenise(benchmark::State& state) {
  testing::TempDir temp;
  const auto encoder = Encoder(temp);
  int64_t rows = 0, tokens = 0, run = 0;
  for (auto _ : state) {
    const std::string cache = temp.Join("cache" + std::to_string(run++));
    const auto dataset =
        Dataset::Open(Options(cache, static_cast<int>(state.range(0))), *encoder, PosixFileSystem()).value();
    rows += dataset->rows();
    tokens += dataset->stats().tokens;
  }
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(rows), benchmark::Counter::kIsRate);
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}
BENCHMARK(Tokenise)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void OpenCached(benchmark::State& state) {
  testing::TempDir temp;
  const auto encoder = Encoder(temp);
  const DatasetOptions options = Options(temp.Join("cache"), 2);
  for (auto _ : state) benchmark::DoNotOptimize(Dataset::Open(options, *encoder, PosixFileSystem()).value()->rows());
}
BENCHMARK(OpenCached)->Unit(benchmark::kMillisecond);

void MicroBatches(benchmark::State& state) {
  testing::TempDir temp;
  const auto encoder = Encoder(temp);
  const auto dataset = Dataset::Open(Options(temp.Join("cache"), 2), *encoder, PosixFileSystem()).value();
  int64_t step = 0, tokens = 0;
  double fill_ratio = 0;
  for (auto _ : state) {
    const StepBatches batches = dataset->MicroBatchesForStep(step++, 0, state.range(0)).value();
    tokens += batches.tokens;
    fill_ratio = batches.fill_ratio;
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
  state.counters["fill_ratio"] = fill_ratio;
}
BENCHMARK(MicroBatches)->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace sluice::engine
