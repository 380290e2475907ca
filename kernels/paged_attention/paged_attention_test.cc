#include "kernels/paged_attention/paged_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/attention/attention.h"
#include "kernels/paged_attention/backends.h"
#include "kernels/testing/tensors.h"

namespace sluice::kernels {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::SumTolerance;
using testing::TestDevice;
using testing::WaitForTestDevice;

constexpr DType kF = DType::kFloat32;
constexpr DType kB = DType::kBFloat16;

struct Case {
  std::vector<int32_t> lengths;  // tokens of each sequence
  int64_t q_heads, kv_heads, head_dim, page_size;
  DType dtype;
  int64_t window;
};

// One token, a page that is just full, sequences longer than a block of rows; groups of 1, 2, 3, 4, 7, 12
// and 20; head sizes on no vector border; windows below a page, over several and above every sequence.
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {{1}, 1, 1, 8, 16, kF, 0},          {{5, 16, 33}, 3, 1, 16, 16, kF, 0}, {{70, 2}, 2, 2, 64, 1, kF, 0},
      {{40, 107}, 6, 3, 64, 16, kF, 4},   {{90, 17}, 2, 1, 20, 7, kF, 25},    {{65}, 14, 2, 64, 16, kF, 1000},
      {{33, 48, 1}, 7, 1, 64, 16, kB, 0}, {{80}, 2, 1, 128, 32, kB, 50},      {{300, 31}, 14, 2, 64, 16, kB, 0},
      {{150, 5}, 8, 2, 128, 7, kB, 0},    {{129, 64}, 12, 1, 64, 16, kB, 70}, {{66}, 20, 1, 128, 16, kB, 0},
      {{40, 3}, 3, 3, 80, 16, kB, 0},
  };
  return cases;
}

enum class Engine : uint8_t { kCpu, kCuda };

std::vector<Engine> Engines() {
  std::vector<Engine> engines = {Engine::kCpu};
  if (testing::AvailableBackends().size() > 1) engines.push_back(Engine::kCuda);
  return engines;
}

// How far one sequence's tokens are computed by one call.
struct Piece {
  int64_t sequence, begin, end;
};
using Call = std::vector<Piece>;

class PagedAttentionTest : public ::testing::TestWithParam<std::tuple<Case, Engine>> {
 protected:
  void SetUp() override {
    if (std::get<1>(GetParam()) == Engine::kCuda) testing::SetTestDevice(Device::Cuda(0));
  }
  void TearDown() override { testing::SetTestDevice(Device::Cpu()); }
};

// Sequences with their whole q, k and v, and pages that are dealt out in shuffled order.
class Problem {
 public:
  Problem(const Case& c, Engine engine) : c_(c), engine_(engine), starts_(1, 0) {
    for (const int32_t length : c.lengths) starts_.push_back(starts_.back() + length);
    const int64_t tokens = starts_.back();
    q_ = HostTensor::Random(c.dtype, {tokens, c.q_heads, c.head_dim}, 1, 1.5);
    k_ = HostTensor::Random(c.dtype, {tokens, c.kv_heads, c.head_dim}, 2, 1.5);
    v_ = HostTensor::Random(c.dtype, {tokens, c.kv_heads, c.head_dim}, 3);
    qs_ = q_.values(), ks_ = k_.values(), vs_ = v_.values();
    ForgetCache(/*seed=*/1);
  }

  // Poisons the cache and deals out other pages.
  void ForgetCache(uint32_t seed) {
    table_width_ = 0;
    int64_t pages = 3;
    for (const int32_t length : c_.lengths) {
      const int64_t own = (length + c_.page_size - 1) / c_.page_size;
      table_width_ = std::max(table_width_, own + 1);
      pages += own;
    }
    order_.resize(static_cast<size_t>(pages));
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(seed));
    const Shape shape = {pages, c_.page_size, c_.kv_heads, c_.head_dim};
    const int64_t stride = 2 * shape.row_elements() + 8;
    k_cache_ = HostTensor::Poisoned(c_.dtype, shape, stride);
    v_cache_ = HostTensor::Poisoned(c_.dtype, shape, stride);
  }

  // Runs one call; results go to their rows of `out`.
  void Run(const Call& call, std::vector<double>& out) {
    std::vector<int32_t> cu_seqlens = {0}, context_lengths, slots, table, sequences, positions;
    std::vector<double> q, k, v;
    for (const Piece& piece : call) {
      const std::vector<int32_t> row = PagesOf(piece.sequence);
      table.insert(table.end(), row.begin(), row.end());
      for (int64_t i = piece.begin; i < piece.end; ++i) {
        slots.push_back(
            static_cast<int32_t>(row[static_cast<size_t>(i / c_.page_size)] * c_.page_size + i % c_.page_size));
        sequences.push_back(static_cast<int32_t>(context_lengths.size()));
        positions.push_back(static_cast<int32_t>(i));
        const int64_t token = starts_[static_cast<size_t>(piece.sequence)] + i;
        AddRow(qs_, token, c_.q_heads * c_.head_dim, q);
        AddRow(ks_, token, c_.kv_heads * c_.head_dim, k);
        AddRow(vs_, token, c_.kv_heads * c_.head_dim, v);
      }
      cu_seqlens.push_back(static_cast<int32_t>(slots.size()));
      context_lengths.push_back(static_cast<int32_t>(piece.end));
    }
    if (engine_ == Engine::kCuda) {  // a token that belongs to nobody
      AddRow(qs_, 0, c_.q_heads * c_.head_dim, q);
      AddRow(ks_, 0, c_.kv_heads * c_.head_dim, k);
      AddRow(vs_, 0, c_.kv_heads * c_.head_dim, v);
      slots.push_back(-1), sequences.push_back(-1), positions.push_back(0);
    }
    const auto tokens = static_cast<int64_t>(slots.size());
    const auto new_q = HostTensor::Of(c_.dtype, {tokens, c_.q_heads, c_.head_dim}, q);
    const auto new_k = HostTensor::Of(c_.dtype, {tokens, c_.kv_heads, c_.head_dim}, k);
    const auto new_v = HostTensor::Of(c_.dtype, {tokens, c_.kv_heads, c_.head_dim}, v);
    const auto slot_tensor = HostTensor::OfInts(slots);
    const auto table_tensor = HostTensor::OfInts(table);
    const auto sequence_tensor = HostTensor::OfInts(sequences), position_tensor = HostTensor::OfInts(positions);
    auto result = HostTensor::Poisoned(c_.dtype, {tokens, c_.q_heads, c_.head_dim});
    const PagedAppend append = {.k = new_k, .v = new_v, .slots = slot_tensor, .k_cache = k_cache_, .v_cache = v_cache_};
    const PagedAttention attention = {
        .q = new_q,
        .k_cache = k_cache_,
        .v_cache = v_cache_,
        .block_table = table_tensor.view().Reshaped({static_cast<int64_t>(context_lengths.size()), table_width_}),
        .cu_seqlens = cu_seqlens,
        .context_lengths = context_lengths,
        .sequences = sequence_tensor,
        .positions = position_tensor,
        .scale = scale(),
        .window = c_.window,
        .out = result};
    const Stream stream = DefaultStream(TestDevice());
    if (engine_ == Engine::kCpu) {
      ASSERT_OK(cpu::Run(append, stream));
      ASSERT_OK(cpu::Forward(attention, stream));
    } else {
      ASSERT_OK(kernels::Run(append, stream));
      ASSERT_OK(kernels::Forward(attention, stream));
    }
    WaitForTestDevice();
    const std::vector<double> rows = result.values();
    const int64_t width = c_.q_heads * c_.head_dim;
    int64_t at = 0;
    for (const Piece& piece : call) {
      const int64_t count = (piece.end - piece.begin) * width;
      const int64_t to = (starts_[static_cast<size_t>(piece.sequence)] + piece.begin) * width;
      std::copy_n(rows.begin() + at, count, out.begin() + to);
      at += count;
    }
  }

  std::vector<double> Run(const std::vector<Call>& calls) {
    std::vector<double> out(static_cast<size_t>(starts_.back() * c_.q_heads * c_.head_dim), std::nan(""));
    for (const Call& call : calls) Run(call, out);
    EXPECT_TRUE(k_cache_.gaps_untouched() && v_cache_.gaps_untouched());
    return out;
  }

  // What the attention over whole sequences gives, in fp32 from the same inputs.
  std::vector<double> Want() const {
    std::vector<int32_t> cu_seqlens(starts_.begin(), starts_.end());
    const auto q = HostTensor::Of(kF, {starts_.back(), c_.q_heads, c_.head_dim}, q_.values());
    const auto k = HostTensor::Of(kF, {starts_.back(), c_.kv_heads, c_.head_dim}, k_.values());
    const auto v = HostTensor::Of(kF, {starts_.back(), c_.kv_heads, c_.head_dim}, v_.values());
    auto out = HostTensor::Poisoned(kF, {starts_.back(), c_.q_heads, c_.head_dim});
    auto logsumexp = HostTensor::Poisoned(kF, {c_.q_heads, starts_.back()});
    const Stream stream = DefaultStream(TestDevice());
    EXPECT_OK(kernels::Forward(AttentionForward{.q = q,
                                                .k = k,
                                                .v = v,
                                                .cu_seqlens = cu_seqlens,
                                                .scale = scale(),
                                                .window = c_.window,
                                                .out = out,
                                                .logsumexp = logsumexp},
                               stream));
    WaitForTestDevice();
    return out.values();
  }

  HostTensor Tensor(const std::vector<double>& values) const {
    return HostTensor::Of(c_.dtype, {starts_.back(), c_.q_heads, c_.head_dim}, values);
  }

  int64_t length(int64_t sequence) const { return c_.lengths[static_cast<size_t>(sequence)]; }
  int64_t sequences() const { return static_cast<int64_t>(c_.lengths.size()); }

  // Every sequence by itself, in chunks of `size`.
  std::vector<Call> OneByOne(int64_t size) const {
    std::vector<Call> calls;
    for (int64_t s = 0; s < sequences(); ++s) {
      for (int64_t at = 0; at < length(s); at += size) calls.push_back({{s, at, std::min(at + size, length(s))}});
    }
    return calls;
  }

  // All sequences side by side, each in chunks of another size, those that decode first.
  std::vector<Call> Mixed() const {
    std::vector<Call> calls;
    std::vector<int64_t> done(c_.lengths.size());
    for (bool more = true; more;) {
      Call decoding, chunks;
      for (int64_t s = 0; s < sequences(); ++s) {
        int64_t& at = done[static_cast<size_t>(s)];
        if (at == length(s)) continue;
        const int64_t size = at < length(s) / 2 ? 3 + 10 * s : 1;
        const Piece piece = {s, at, std::min(at + size, length(s))};
        (piece.end - piece.begin == 1 ? decoding : chunks).push_back(piece);
        at = piece.end;
      }
      decoding.insert(decoding.end(), chunks.begin(), chunks.end());
      more = !decoding.empty();
      if (more) calls.push_back(decoding);
    }
    return calls;
  }

 private:
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c_.head_dim)); }

  std::vector<int32_t> PagesOf(int64_t sequence) const {
    size_t first = 0;
    for (int64_t s = 0; s < sequence; ++s) first += static_cast<size_t>((length(s) + c_.page_size - 1) / c_.page_size);
    std::vector<int32_t> row(static_cast<size_t>(table_width_), order_.back());
    const auto own = static_cast<size_t>((length(sequence) + c_.page_size - 1) / c_.page_size);
    std::copy_n(order_.begin() + static_cast<int64_t>(first), own, row.begin());
    return row;
  }

  static void AddRow(const std::vector<double>& from, int64_t row, int64_t width, std::vector<double>& to) {
    to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
  }

  Case c_;
  Engine engine_;
  std::vector<int64_t> starts_;
  std::vector<int32_t> order_;
  int64_t table_width_ = 0;
  HostTensor q_, k_, v_, k_cache_, v_cache_;
  std::vector<double> qs_, ks_, vs_;
};

TEST_P(PagedAttentionTest, AnySplitEqualsAttentionOverWholeSequences) {
  const auto& [c, engine] = GetParam();
  Problem problem(c, engine);
  const std::vector<double> want = problem.Want();
  testing::Tolerance tolerance = SumTolerance(c.dtype, 64.0);
  // On tensor cores the weights of the values are rounded to bf16, each by less than a part of 2^-8.
  if (engine == Engine::kCuda && c.dtype == kB) tolerance.absolute = std::max(tolerance.absolute, 4e-3);
  for (const int64_t chunk : {1, 2, 7, 31, 1000}) {
    EXPECT_TENSOR_NEAR(problem.Tensor(problem.Run(problem.OneByOne(chunk))), want, tolerance);
    problem.ForgetCache(static_cast<uint32_t>(chunk));
  }
  EXPECT_TENSOR_NEAR(problem.Tensor(problem.Run(problem.Mixed())), want, tolerance);
}

TEST_P(PagedAttentionTest, BitsDoNotDependOnTheBatch) {
  const auto& [c, engine] = GetParam();
  Problem problem(c, engine);
  if (engine == Engine::kCuda) {  // of calls of as many tokens
    for (const auto& calls : {problem.Mixed(), problem.OneByOne(1), problem.OneByOne(1000)}) {
      problem.ForgetCache(6);
      const std::vector<double> first = problem.Run(calls);
      problem.ForgetCache(7);
      EXPECT_EQ(problem.Run(calls), first);
    }
    return;
  }
  const std::vector<double> alone = problem.Run(problem.OneByOne(1000));
  for (const int64_t chunk : {1, 5}) {
    problem.ForgetCache(7);
    EXPECT_EQ(problem.Run(problem.OneByOne(chunk)), alone) << "chunks of " << chunk;
  }
  problem.ForgetCache(8);
  EXPECT_EQ(problem.Run(problem.Mixed()), alone);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttentionTest,
                         ::testing::Combine(::testing::ValuesIn(Cases()), ::testing::ValuesIn(Engines())),
                         [](const auto& info) {
                           const std::string device = std::get<1>(info.param) == Engine::kCuda ? "cuda_" : "cpu_";
                           return device + std::to_string(info.index / Engines().size());
                         });

TEST(PagedAttentionTest, NamesTheWrongArgument) {
  const Stream cpu = DefaultStream(Device::Cpu());
  const auto q = HostTensor::Random(kF, {3, 4, 8}, 1);
  auto k_cache = HostTensor::Random(kF, {5, 4, 2, 8}, 2);
  auto v_cache = HostTensor::Random(kF, {5, 4, 2, 8}, 3);
  auto out = HostTensor::Poisoned(kF, {3, 4, 8});
  const auto table = HostTensor::OfInts({0, 1, 2, 9});
  const std::vector<int32_t> cu_seqlens = {0, 1, 3}, lengths = {8, 4};
  const PagedAttention good = {.q = q,
                               .k_cache = k_cache,
                               .v_cache = v_cache,
                               .block_table = table.view().Reshaped({2, 2}),
                               .cu_seqlens = cu_seqlens,
                               .context_lengths = lengths,
                               .scale = 1.0f,
                               .out = out};
  ASSERT_OK(Forward(good, cpu));
  const auto expect = [&](const PagedAttention& args, const char* message) {
    EXPECT_THAT(Forward(args, cpu), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  PagedAttention args = good;
  args.v_cache = q;
  expect(args, "paged_attention: v_cache: expected fp32 [5, 4, 2, 8]");
  args = good;
  const std::vector<int32_t> too_long = {8, 9}, too_short = {8, 1}, past_page = {8, 5}, one = {8};
  args.context_lengths = too_long;
  expect(args, "sequence 1 has 9 tokens, of which 2 are new; its row of the table has room for 8");
  args.context_lengths = too_short;
  expect(args, "sequence 1 has 1 tokens, of which 2 are new");
  args.context_lengths = one;
  expect(args, "has 1 entries for 2 sequences");
  args.context_lengths = past_page;
  expect(args, "sequence 1 names page 9 of 5");
  args = good;
  const std::vector<int32_t> late = {1, 2, 3};
  args.cu_seqlens = late;
  expect(args, "does not start at 0");

  const auto k = HostTensor::Random(kF, {2, 2, 8}, 4);
  const auto slots = HostTensor::OfInts({3, 20});
  EXPECT_THAT(
      kernels::Run(PagedAppend{.k = k, .v = k, .slots = slots, .k_cache = k_cache, .v_cache = v_cache}, cpu),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("paged_append: slots: token 1 names slot 20 of 20")));
}

}  // namespace
}  // namespace sluice::kernels
