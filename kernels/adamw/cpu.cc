#include <algorithm>

#include "kernels/adamw/backends.h"
#include "kernels/adamw/update.h"
#include "kernels/parallel.h"

namespace sluice::kernels::cpu {
namespace {

// Elements are updated this many at a time, as fp32 values in the first-level cache: the loop over them is the same for
// every way to store them. A multiple of kGroup.
constexpr int64_t kBlock = 512;

void Load(ConstTensorView from, int64_t first, int64_t count, float* to) {
  if (from.dtype == DType::kFloat32) {
    std::copy_n(from.as<float>() + first, count, to);
  } else {
    const BFloat16* values = from.as<BFloat16>() + first;
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(values[i]);
  }
}

// Where the random bits of a block come from.
struct Source {
  uint64_t seed, updates;
  int64_t first_group;
};

void Store(const float* from, int64_t first, int64_t count, Source source, Rounding rounding, TensorView to) {
  if (to.dtype == DType::kFloat32) {
    std::copy_n(from, count, to.as<float>() + first);
    return;
  }
  BFloat16* values = to.as<BFloat16>() + first;
  for (int64_t begin = 0; begin < count; begin += kGroup) {
    const PhiloxBlock bits = RoundingBits(source.seed, source.updates, source.first_group + begin / kGroup, rounding);
    const int group = static_cast<int>(std::min<int64_t>(kGroup, count - begin));
    for (int i = 0; i < group; ++i) values[begin + i].bits = RoundStochastically(from[begin + i], BitsOf(bits, i));
  }
}

void LoadMaster(ConstTensorView param, ConstTensorView remainder, int64_t first, int64_t count, float* to) {
  const BFloat16* high = param.as<BFloat16>() + first;
  const int16_t* low = remainder.as<int16_t>() + first;
  for (int64_t i = 0; i < count; ++i) to[i] = Join(high[i].bits, low[i]);
}

void StoreMaster(const float* from, int64_t first, int64_t count, TensorView param, TensorView remainder) {
  BFloat16* high = param.as<BFloat16>() + first;
  int16_t* low = remainder.as<int16_t>() + first;
  for (int64_t i = 0; i < count; ++i) {
    const MasterParts parts = Split(from[i]);
    high[i].bits = parts.param;
    low[i] = parts.remainder;
  }
}

void Update(const UpdateFactors& factors, const float* grad, int64_t count, float* p, float* m, float* v) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) UpdateElement(factors, grad[i], p[i], m[i], v[i]);
}

void UpdateBlock(const AdamW& args, const UpdateFactors& factors, uint64_t updates, int64_t first, int64_t count) {
  alignas(64) float p[kBlock], m[kBlock], v[kBlock];
  args.remainder.empty() ? Load(args.param, first, count, p) : LoadMaster(args.param, args.remainder, first, count, p);
  Load(args.exp_avg, first, count, m);
  Load(args.exp_avg_sq, first, count, v);
  Update(factors, args.grad.as<float>() + first, count, p, m, v);
  const Source source = {args.options.seed, updates, (args.options.first_element + first) / kGroup};
  Store(m, first, count, source, Rounding::kExpAvg, args.exp_avg);
  Store(v, first, count, source, Rounding::kExpAvgSq, args.exp_avg_sq);
  if (args.remainder.empty()) {
    Store(p, first, count, source, Rounding::kParam, args.param);
  } else {
    StoreMaster(p, first, count, args.param, args.remainder);
  }
}

// body(first, count) for blocks of an array, by several threads.
template <typename Body>
void ForEachBlock(int64_t elements, Body body) {
  ParallelFor((elements + kBlock - 1) / kBlock, GrainOf(4 * kBlock), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      body(block * kBlock, std::min(kBlock, elements - block * kBlock));
    }
  });
}

}  // namespace

absl::Status Run(const DecideUpdate& args, Stream) {
  const double loss = args.loss.empty() ? 0.0 : args.loss.as<double>()[0];
  Decide(args.sum_of_squares.as<double>()[0], loss, args.learning_rate.as<double>()[0], args.max_norm, args.beta1,
         args.beta2, args.control.as<float>());
  return absl::OkStatus();
}

absl::Status Run(const AdamW& args, Stream) {
  const float* control = args.control.as<float>();
  if (control[kControlApplies] == 0.0f) return absl::OkStatus();
  const UpdateFactors factors = FactorsOf(args.options, control);
  const auto updates = static_cast<uint64_t>(control[kControlUpdates]);
  ForEachBlock(args.param.dim(0),
               [&](int64_t first, int64_t count) { UpdateBlock(args, factors, updates, first, count); });
  return absl::OkStatus();
}

absl::Status Run(const SplitMaster& args, Stream) {
  ForEachBlock(args.master.dim(0), [&](int64_t first, int64_t count) {
    StoreMaster(args.master.as<float>() + first, first, count, args.param, args.remainder);
  });
  return absl::OkStatus();
}

absl::Status Run(const JoinMaster& args, Stream) {
  ForEachBlock(args.master.dim(0), [&](int64_t first, int64_t count) {
    LoadMaster(args.param, args.remainder, first, count, args.master.as<float>() + first);
  });
  return absl::OkStatus();
}

}  // namespace sluice::kernels::cpu
