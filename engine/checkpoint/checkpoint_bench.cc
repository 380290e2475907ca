// How fast tensors come from and go to disk: checksum, header of a large model, conversion, a whole save and load.
//   build/bench/checkpoint_bench
#include <benchmark/benchmark.h>

#include <filesystem>
#include <vector>

#include "common/crc32c.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "engine/checkpoint/float_conversion.h"
#include "engine/checkpoint/safetensors_header.h"

namespace sluice::engine {
namespace {

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  uint32_t state = 1;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

void BM_Crc32c(benchmark::State& state) {
  const std::vector<std::byte> bytes = Pattern(64 << 20);
  for (auto _ : state) benchmark::DoNotOptimize(Crc32c(bytes));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
}
BENCHMARK(BM_Crc32c)->Unit(benchmark::kMillisecond);

// As many tensors as a mixture of experts with 128 experts in 48 layers has.
void BM_ParseHeader(benchmark::State& state) {
  std::vector<TensorSpec> specs;
  for (int layer = 0; layer < 48; ++layer) {
    for (int expert = 0; expert < 128 * 3; ++expert) {
      specs.push_back({"model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(expert) + ".weight",
                       DataType::kU8,
                       {1}});
    }
  }
  const std::vector<TensorEntry> placed = *PlaceTensors(std::move(specs));
  std::string file = *SerializeSafetensorsHeader(placed, {});
  file.append(placed.back().end, 'x');
  for (auto _ : state) {
    const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(std::as_bytes(std::span(file)));
    if (!header.ok()) state.SkipWithError("not parsed");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(placed.size()));
}
BENCHMARK(BM_ParseHeader)->Unit(benchmark::kMillisecond);

void BM_ConvertToFloat32(benchmark::State& state) {
  const DataType dtype = static_cast<DataType>(state.range(0));
  const std::vector<std::byte> bytes = Pattern(16 << 20);
  std::vector<float> values(bytes.size() / static_cast<size_t>(ElementSize(dtype)));
  for (auto _ : state) {
    if (!ConvertToFloat32(dtype, bytes, values).ok()) state.SkipWithError("not converted");
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
  state.SetLabel(DataTypeName(dtype));
}
BENCHMARK(BM_ConvertToFloat32)
    ->Arg(static_cast<int>(DataType::kBF16))
    ->Arg(static_cast<int>(DataType::kF16))
    ->Arg(static_cast<int>(DataType::kF8E4M3))
    ->Unit(benchmark::kMillisecond);

// 256 MiB in 16 tensors, to the folder for temporary files; loading includes the checksum.
void BM_SaveAndLoad(benchmark::State& state) {
  const std::string folder = (std::filesystem::temp_directory_path() / "sluice_checkpoint_bench").string();
  const std::vector<std::byte> bytes = Pattern(16 << 20);
  std::vector<TensorData> tensors;
  for (int i = 0; i < 16; ++i) {
    tensors.push_back({{"t" + std::to_string(i), DataType::kU8, {static_cast<int64_t>(bytes.size())}}, bytes});
  }
  CheckpointStore store =
      *CheckpointStore::Create(PosixFileSystem(), {.folder = folder, .max_ckpt_to_keep = 1, .attempt = "bench"});
  int64_t step = 0;
  for (auto _ : state) {
    PendingCheckpoint pending = *store.Begin(++step);
    if (!pending.AddTensors("weights.safetensors", tensors, {}).ok() ||
        !pending.Commit(pending.entries(), 1, "{}").ok() ||
        !store.Open(step)->OpenTensors("weights.safetensors").ok()) {
      state.SkipWithError("not saved");
      break;
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size() * tensors.size()));
  PosixFileSystem().RemoveFolder(folder).IgnoreError();
}
BENCHMARK(BM_SaveAndLoad)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace sluice::engine
