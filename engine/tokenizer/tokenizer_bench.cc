// Speed of the tokenizer on one core. tools/bench/tokenizer.py runs this next to Hugging Face `tokenizers`.
//
//   SLUICE_BENCH_TOKENIZER=tokenizer.json SLUICE_BENCH_TEXT=text.txt tokenizer_bench
//
// Without the variables: a small tokenizer of the tests, on this project's own documentation of it.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine {
namespace {

constexpr size_t kDocumentBytes = 4096;  // the script cuts the same way

std::string FromEnvironment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

struct Input {
  std::unique_ptr<const Tokenizer> tokenizer;
  std::string text;
  std::vector<std::string_view> documents;  // of `text`: whole lines, cut after the first line end past kDocumentBytes

  Input() {
    auto loaded =
        Tokenizer::Load(FromEnvironment("SLUICE_BENCH_TOKENIZER", "tests/golden/tokenizer/qwen2_style.tokenizer.json"));
    std::ifstream file(FromEnvironment("SLUICE_BENCH_TEXT", "engine/tokenizer/tokenizer.h"), std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!loaded.ok() || text.empty()) {
      std::cerr << "tokenizer_bench: " << (loaded.ok() ? "no text: set SLUICE_BENCH_TEXT" : loaded.status().message())
                << "\n";
      std::exit(2);
    }
    tokenizer = *std::move(loaded);
    for (size_t begin = 0; begin < text.size();) {
      const size_t line_end = text.find('\n', std::min(begin + kDocumentBytes, text.size() - 1));
      const size_t end = line_end == text.npos ? text.size() : line_end + 1;
      documents.push_back(std::string_view(text).substr(begin, end - begin));
      begin = end;
    }
  }
};

const Input& TheInput() {
  static const Input* const input = new Input;
  return *input;
}

void SetBytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(TheInput().text.size()));
}

void BM_Encode(benchmark::State& state) {
  const Input& input = TheInput();
  for (auto _ : state) {
    for (const std::string_view document : input.documents) benchmark::DoNotOptimize(input.tokenizer->Encode(document));
  }
  SetBytes(state);
}
BENCHMARK(BM_Encode)->Unit(benchmark::kMillisecond);

void BM_EncodeWithOffsets(benchmark::State& state) {
  const Input& input = TheInput();
  for (auto _ : state) {
    for (const std::string_view document : input.documents) {
      benchmark::DoNotOptimize(input.tokenizer->EncodeWithOffsets(document));
    }
  }
  SetBytes(state);
}
BENCHMARK(BM_EncodeWithOffsets)->Unit(benchmark::kMillisecond);

void BM_Decode(benchmark::State& state) {
  const Input& input = TheInput();
  std::vector<std::vector<int32_t>> ids;
  for (const std::string_view document : input.documents) ids.push_back(input.tokenizer->Encode(document));
  for (auto _ : state) {
    for (const auto& row : ids) benchmark::DoNotOptimize(input.tokenizer->Decode(row));
  }
  SetBytes(state);
}
BENCHMARK(BM_Decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice::engine
