// Matmuls of a SmolLM2-135M block at 1,024 tokens (H 576, I 1536, packed QKV of 960 columns) and decoding, one sequence and many.
#include <benchmark/benchmark.h>

#include "kernels/matmul/matmul.h"
#include "kernels/testing/bench_buffers.h"

namespace sluice::kernels {
namespace {

using testing::BenchBuffer;

enum class Product { kForward, kInputGradient, kWeightGradient };

template <typename T, Product product>
void RunProduct(benchmark::State& state) {
  const int64_t tokens = state.range(0), out = state.range(1), in = state.range(2);
  BenchBuffer<T> x({tokens, in}), weight({out, in}), y({tokens, out});
  BenchBuffer<float> dweight({out, in});
  MatMul args = {.a = x, .b = weight, .transpose_b = true, .c = y};
  if constexpr (product == Product::kInputGradient) args = {.a = y, .b = weight, .c = x};
  if constexpr (product == Product::kWeightGradient)
    args = {.a = y, .transpose_a = true, .b = x, .c = dweight, .beta = 1.0f};
  for (auto _ : state) {
    const absl::Status status = Run(args, DefaultStream(Device::Cpu()));
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * static_cast<double>(tokens * out * in), benchmark::Counter::kIsIterationInvariantRate);
}

void Shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "out", "in"})->Unit(benchmark::kMillisecond)->UseRealTime();
  bench->Args({1024, 960, 576})->Args({1024, 3072, 576})->Args({1024, 576, 1536});
}

BENCHMARK_TEMPLATE(RunProduct, float, Product::kForward)->Apply(Shapes)->Args({1, 3072, 576})->Args({32, 3072, 576});
BENCHMARK_TEMPLATE(RunProduct, float, Product::kInputGradient)->Apply(Shapes);
BENCHMARK_TEMPLATE(RunProduct, float, Product::kWeightGradient)->Apply(Shapes);
BENCHMARK_TEMPLATE(RunProduct, BFloat16, Product::kForward)->Apply(Shapes)->Args({1, 3072, 576})->Args({32, 3072, 576});
BENCHMARK_TEMPLATE(RunProduct, BFloat16, Product::kInputGradient)->Apply(Shapes);
BENCHMARK_TEMPLATE(RunProduct, BFloat16, Product::kWeightGradient)->Apply(Shapes);

}  // namespace
}  // namespace sluice::kernels
