#include "engine/bench/kernel_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/bench/ceiling.h"
#include "engine/bench/gpu_timer.h"
#include "engine/bench/random_tensor.h"
#include "engine/device/engine_stream.h"
#include "kernels/adamw/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/bias/bias.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/flat/flat.h"
#include "kernels/matmul/matmul.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/swiglu/swiglu.h"

namespace sluice::engine {
namespace {

using kernels::DType;
using kernels::Shape;

constexpr DType kB = DType::kBFloat16;
constexpr DType kF = DType::kFloat32;

struct Sizes {
  const char* model;
  int64_t tokens, sequence, hidden, intermediate, heads, kv_heads, head_dim, vocab, parameters;
};
constexpr Sizes kSizes[] = {
    {"qwen2.5-0.5b", 16384, 1024, 896, 4864, 14, 2, 64, 151936, int64_t{494} << 20},
    {"llama3-8b", 8192, 4096, 4096, 14336, 32, 8, 128, 128256, int64_t{512} << 20},
};

class Bench {
 public:
  Bench(const KernelBenchOptions& options, const Sizes& sizes, const Ceiling& ceiling)
      : options_(options), s_(sizes), ceiling_(ceiling), stream_(options.stream) {}

  absl::Status RunAll() {
    for (const auto& part : {&Bench::Norms, &Bench::Rope, &Bench::Swiglu, &Bench::Sums, &Bench::Embedding,
                             &Bench::Optimizer, &Bench::Products, &Bench::Head, &Bench::Attention, &Bench::Decoding}) {
      RETURN_IF_ERROR((this->*part)());
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<RandomTensor> Make(DType dtype, Shape shape, double scale = 1.0, int64_t limit = 0) {
    return RandomTensor::Create(dtype, shape, stream_, ++seed_, scale, limit);
  }

  bool IsWanted(const std::string& name) const { return absl::StrContains(name, options_.filter); }

  // `bytes` or `flops` of one call; the other is 0.
  absl::Status Report(const std::string& name, double bytes, double flops, const std::function<absl::Status()>& call,
                      int64_t workspace_bytes = 0) {
    if (!IsWanted(name)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const double seconds, MedianSeconds(stream_, 5, 20, call));
    nlohmann::ordered_json line = {
        {"run", "kernel"}, {"kernel", name}, {"model", s_.model}, {"ms", std::round(seconds * 1e7) / 1e4}};
    if (bytes > 0) {
      line["gb_per_s"] = std::round(bytes / seconds / 1e9);
      line["of_copy"] = std::round(bytes / seconds / ceiling_.copy_bytes_per_second * 1e3) / 1e3;
      // A kernel of 30 us spends a good part of it on starting and ending, and so does a copy.
      ASSIGN_OR_RETURN(const double copy_seconds, CopySeconds(static_cast<int64_t>(bytes / 2)));
      line["of_copy_of_this_size"] = std::round(copy_seconds / seconds * 1e3) / 1e3;
    } else {
      line["tflops"] = std::round(flops / seconds / 1e11) / 10;
      line["of_gemm"] = std::round(flops / seconds / ceiling_.gemm_flops_per_second * 1e3) / 1e3;
    }
    if (workspace_bytes > 0)
      line["workspace_gib"] = std::round(static_cast<double>(workspace_bytes) / (1 << 30) * 1e3) / 1e3;
    std::cout << line.dump() << std::endl;
    return absl::OkStatus();
  }

  absl::StatusOr<double> CopySeconds(int64_t bytes) {
    ASSIGN_OR_RETURN(const DeviceMemory memory, DeviceMemory::Allocate(2 * bytes, stream_.device));
    char* data = memory.View(0, DType::kInt16, {1}).as<char>();
    return MedianSeconds(stream_, 5, 20, [&] {
      cudaMemcpyAsync(data + bytes, data, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                      static_cast<cudaStream_t>(stream_.handle));
      return absl::OkStatus();
    });
  }

  absl::Status Norms() {
    if (!IsWanted("rms_norm_forward") && !IsWanted("rms_norm_backward")) return absl::OkStatus();
    const Shape shape = {s_.tokens, s_.hidden};
    ASSIGN_OR_RETURN(const RandomTensor x, Make(kB, shape));
    ASSIGN_OR_RETURN(const RandomTensor residual, Make(kB, shape));
    ASSIGN_OR_RETURN(const RandomTensor out, Make(kB, shape));
    ASSIGN_OR_RETURN(const RandomTensor y, Make(kB, shape));
    ASSIGN_OR_RETURN(const RandomTensor weight, Make(kB, {s_.hidden}));
    ASSIGN_OR_RETURN(const RandomTensor rstd, Make(kF, {s_.tokens}));
    ASSIGN_OR_RETURN(const RandomTensor dweight, Make(kF, {s_.hidden}));
    const double row_bytes = static_cast<double>(shape.elements()) * 2;
    RETURN_IF_ERROR(Report("rms_norm_forward", 4 * row_bytes, 0, [&] {
      return kernels::Forward(
          kernels::RmsNormForward{
              .x = x, .residual = residual, .weight = weight, .eps = 1e-6f, .residual_out = out, .y = y, .rstd = rstd},
          stream_);
    }));
    return Report("rms_norm_backward", 5 * row_bytes, 0, [&] {
      return kernels::Backward(
          kernels::RmsNormBackward{
              .dy = x, .r = residual, .weight = weight, .rstd = rstd, .dr = out, .dweight = dweight, .y = y},
          stream_);
    });
  }

  absl::Status Rope() {
    if (!IsWanted("rope_forward") && !IsWanted("rope_backward")) return absl::OkStatus();
    const int64_t columns = (s_.heads + 2 * s_.kv_heads) * s_.head_dim;
    ASSIGN_OR_RETURN(const RandomTensor qkv, Make(kB, {s_.tokens, columns}));
    ASSIGN_OR_RETURN(const RandomTensor cos_sin, Make(kF, {s_.tokens, s_.head_dim}));
    ASSIGN_OR_RETURN(const RandomTensor q, Make(kB, {s_.tokens, s_.heads, s_.head_dim}));
    ASSIGN_OR_RETURN(const RandomTensor k, Make(kB, {s_.tokens, s_.kv_heads, s_.head_dim}));
    ASSIGN_OR_RETURN(const RandomTensor v, Make(kB, {s_.tokens, s_.kv_heads, s_.head_dim}));
    const double bytes =
        static_cast<double>(s_.tokens) * (4.0 * static_cast<double>(columns) + 4.0 * static_cast<double>(s_.head_dim));
    RETURN_IF_ERROR(Report("rope_forward", bytes, 0, [&] {
      return kernels::Forward(kernels::RopeForward{.qkv = qkv, .cos_sin = cos_sin, .q = q, .k = k, .v = v}, stream_);
    }));
    return Report("rope_backward", bytes, 0, [&] {
      return kernels::Backward(kernels::RopeBackward{.dq = q, .dk = k, .dv = v, .cos_sin = cos_sin, .dqkv = qkv},
                               stream_);
    });
  }

  absl::Status Swiglu() {
    if (!IsWanted("swiglu_forward") && !IsWanted("swiglu_backward") && !IsWanted("swiglu_projection")) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const RandomTensor gate_up, Make(kB, {s_.tokens, 2 * s_.intermediate}));
    ASSIGN_OR_RETURN(const RandomTensor y, Make(kB, {s_.tokens, s_.intermediate}));
    ASSIGN_OR_RETURN(const RandomTensor dy, Make(kB, {s_.tokens, s_.intermediate}));
    const double part = static_cast<double>(s_.tokens * s_.intermediate) * 2;
    RETURN_IF_ERROR(Report("swiglu_forward", 3 * part, 0, [&] {
      return kernels::Forward(kernels::SwigluForward{.gate_up = gate_up, .y = y}, stream_);
    }));
    RETURN_IF_ERROR(Report("swiglu_backward", 6 * part, 0, [&] {
      return kernels::Backward(kernels::SwigluBackward{.dy = dy, .gate_up = gate_up, .dgate_up = gate_up, .y = y},
                               stream_);
    }));
    ASSIGN_OR_RETURN(const RandomTensor x, Make(kB, {s_.tokens, s_.hidden}));
    ASSIGN_OR_RETURN(const RandomTensor weight, Make(kB, {2 * s_.intermediate, s_.hidden}, 0.02));
    const double flops = part * 2 * static_cast<double>(s_.hidden);
    RETURN_IF_ERROR(Report("swiglu_projection", 0, flops, [&] {
      return kernels::Forward(kernels::SwigluProjection{.x = x, .weight = weight, .gate_up = gate_up, .y = y}, stream_);
    }));
    return Report("swiglu_projection_in_two", 0, flops, [&]() -> absl::Status {
      RETURN_IF_ERROR(kernels::Run(kernels::MatMul{.a = x, .b = weight, .transpose_b = true, .c = gate_up}, stream_));
      return kernels::Forward(kernels::SwigluForward{.gate_up = gate_up, .y = y}, stream_);
    });
  }

  absl::Status Sums() {
    const int64_t columns = (s_.heads + 2 * s_.kv_heads) * s_.head_dim;
    if (IsWanted("bias_backward")) {
      ASSIGN_OR_RETURN(const RandomTensor dy, Make(kB, {s_.tokens, columns}));
      ASSIGN_OR_RETURN(const RandomTensor dbias, Make(kF, {columns}));
      RETURN_IF_ERROR(Report("bias_backward", static_cast<double>(s_.tokens * columns) * 2, 0, [&] {
        return kernels::Backward(kernels::BiasBackward{.dy = dy, .dbias = dbias}, stream_);
      }));
    }
    if (!IsWanted("sum_of_squares")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const RandomTensor gradients, Make(kF, {s_.parameters}));
    ASSIGN_OR_RETURN(const RandomTensor sum, Make(DType::kFloat64, {1}));
    return Report("sum_of_squares", static_cast<double>(s_.parameters) * 4, 0,
                  [&] { return kernels::SumOfSquares(gradients.view(), sum.view(), stream_); });
  }

  absl::Status Embedding() {
    if (!IsWanted("embedding_forward") && !IsWanted("embedding_backward")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const RandomTensor ids, Make(DType::kInt32, {s_.tokens}, 1.0, s_.vocab));
    ASSIGN_OR_RETURN(const RandomTensor weight, Make(kB, {s_.vocab, s_.hidden}));
    ASSIGN_OR_RETURN(const RandomTensor y, Make(kB, {s_.tokens, s_.hidden}));
    ASSIGN_OR_RETURN(const RandomTensor dweight, Make(kF, {s_.vocab, s_.hidden}));
    const double elements = static_cast<double>(s_.tokens * s_.hidden);
    RETURN_IF_ERROR(Report("embedding_forward", 4 * elements, 0, [&] {
      return kernels::Forward(kernels::EmbeddingForward{.ids = ids, .weight = weight, .y = y}, stream_);
    }));
    return Report("embedding_backward", 10 * elements, 0, [&] {
      return kernels::Backward(kernels::EmbeddingBackward{.ids = ids, .dy = y, .dweight = dweight}, stream_);
    });
  }

  absl::Status Optimizer() {
    if (!IsWanted("adamw")) return absl::OkStatus();
    const int64_t n = s_.parameters;
    ASSIGN_OR_RETURN(const RandomTensor grad, Make(kF, {n}, 1e-3));
    ASSIGN_OR_RETURN(const RandomTensor param, Make(kB, {n}, 0.02));
    ASSIGN_OR_RETURN(const RandomTensor remainder, Make(DType::kInt16, {n}));
    ASSIGN_OR_RETURN(const RandomTensor control, Make(kF, {kernels::kUpdateControls}));
    ASSIGN_OR_RETURN(const RandomTensor sum, Make(DType::kFloat64, {1}));
    RETURN_IF_ERROR(kernels::Fill(control, 0.0f, stream_));
    RETURN_IF_ERROR(kernels::SumOfSquares(grad.view(), sum.view(), stream_));
    ASSIGN_OR_RETURN(const RandomTensor learning_rate, Make(DType::kFloat64, {1}));
    RETURN_IF_ERROR(kernels::Fill(learning_rate, 1e-5, stream_));
    RETURN_IF_ERROR(kernels::Run(
        kernels::DecideUpdate{
            .sum_of_squares = sum, .learning_rate = learning_rate, .max_norm = 1.0, .control = control},
        stream_));
    for (const DType moments : {kF, kB}) {
      ASSIGN_OR_RETURN(const RandomTensor exp_avg, Make(moments, {n}, 1e-3));
      ASSIGN_OR_RETURN(const RandomTensor exp_avg_sq, Make(moments, {n}, 1e-3));
      RETURN_IF_ERROR(kernels::Run(kernels::AdamW{.control = control,
                                                  .grad = grad,
                                                  .param = param,
                                                  .remainder = remainder,
                                                  .exp_avg = exp_avg,
                                                  .exp_avg_sq = exp_avg_sq},
                                   stream_));
      const double size = moments == kF ? 4 : 2;
      for (const bool masters : {true, false}) {
        RETURN_IF_ERROR(
            Report(absl::StrCat("adamw_", masters ? "master" : "bf16", "_moments_", moments == kF ? "fp32" : "bf16"),
                   static_cast<double>(n) * (4 + (masters ? 8 : 4) + 4 * size), 0, [&] {
                     return kernels::Run(kernels::AdamW{.control = control,
                                                        .grad = grad,
                                                        .param = param,
                                                        .remainder = masters ? remainder.view() : kernels::TensorView(),
                                                        .exp_avg = exp_avg,
                                                        .exp_avg_sq = exp_avg_sq},
                                         stream_);
                   }));
      }
    }
    return absl::OkStatus();
  }

  // The three products of a linear layer.
  absl::Status Linear(const std::string& name, int64_t in, int64_t out) {
    if (!IsWanted(absl::StrCat("gemm_", name))) return absl::OkStatus();
    ASSIGN_OR_RETURN(const RandomTensor x, Make(kB, {s_.tokens, in}));
    ASSIGN_OR_RETURN(const RandomTensor w, Make(kB, {out, in}, 0.02));
    ASSIGN_OR_RETURN(const RandomTensor y, Make(kB, {s_.tokens, out}));
    ASSIGN_OR_RETURN(const RandomTensor dw, Make(kF, {out, in}));
    const double flops = 2.0 * static_cast<double>(s_.tokens) * static_cast<double>(in) * static_cast<double>(out);
    RETURN_IF_ERROR(Report(absl::StrCat("gemm_", name, "_forward"), 0, flops, [&] {
      return kernels::Run(kernels::MatMul{.a = x, .b = w, .transpose_b = true, .c = y}, stream_);
    }));
    // What eight bits would give; no model computes with them yet.
    {
      const kernels::ConstTensorView x8(x.view().data, DType::kFloat8, {s_.tokens, in}, stream_.device);
      const kernels::ConstTensorView w8(w.view().data, DType::kFloat8, {out, in}, stream_.device);
      ASSIGN_OR_RETURN(const RandomTensor scale, Make(kF, {1}));
      RETURN_IF_ERROR(Report(absl::StrCat("gemm_", name, "_forward_fp8"), 0, flops, [&] {
        return kernels::Run(
            kernels::MatMul{
                .a = x8, .b = w8, .transpose_b = true, .c = y, .scale_a = scale.view(), .scale_b = scale.view()},
            stream_);
      }));
    }
    RETURN_IF_ERROR(Report(absl::StrCat("gemm_", name, "_dgrad"), 0, flops,
                           [&] { return kernels::Run(kernels::MatMul{.a = y, .b = w, .c = x}, stream_); }));
    for (const float beta : {0.0f, 1.0f}) {
      RETURN_IF_ERROR(Report(absl::StrCat("gemm_", name, beta == 0 ? "_wgrad" : "_wgrad_add"), 0, flops, [&] {
        return kernels::Run(kernels::MatMul{.a = y, .transpose_a = true, .b = x, .c = dw, .beta = beta}, stream_);
      }));
    }
    return absl::OkStatus();
  }

  absl::Status Products() {
    RETURN_IF_ERROR(Linear("qkv", s_.hidden, (s_.heads + 2 * s_.kv_heads) * s_.head_dim));
    RETURN_IF_ERROR(Linear("output", s_.heads * s_.head_dim, s_.hidden));
    RETURN_IF_ERROR(Linear("gate_up", s_.hidden, 2 * s_.intermediate));
    return Linear("down", s_.intermediate, s_.hidden);
  }

  absl::Status Head() {
    if (!IsWanted("cross_entropy_both") && !IsWanted("cross_entropy_forward") && !IsWanted("cross_entropy_product")) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const RandomTensor hidden, Make(kB, {s_.tokens, s_.hidden}));
    ASSIGN_OR_RETURN(const RandomTensor dhidden, Make(kB, {s_.tokens, s_.hidden}));
    ASSIGN_OR_RETURN(const RandomTensor weight, Make(kB, {s_.vocab, s_.hidden}, 0.02));
    ASSIGN_OR_RETURN(const RandomTensor labels, Make(DType::kInt32, {s_.tokens}, 1.0, s_.vocab));
    ASSIGN_OR_RETURN(const RandomTensor scored, Make(DType::kInt32, {s_.tokens}));
    std::vector<int32_t> all(static_cast<size_t>(s_.tokens));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    RETURN_IF_ERROR(CopyTensor(kernels::ConstTensorView(all.data(), {s_.tokens}), scored));
    ASSIGN_OR_RETURN(const RandomTensor d_loss, Make(kF, {s_.tokens}));
    ASSIGN_OR_RETURN(const RandomTensor log_prob, Make(kF, {s_.tokens}));
    ASSIGN_OR_RETURN(const RandomTensor dweight, Make(kF, {s_.vocab, s_.hidden}));
    const double product =
        2.0 * static_cast<double>(s_.tokens) * static_cast<double>(s_.hidden) * static_cast<double>(s_.vocab);
    for (const int64_t mib : {500, 1000, 2000}) {
      const int64_t bytes = mib << 20;
      const int64_t workspace =
          kernels::CrossEntropyWorkspace(s_.tokens, s_.hidden, s_.vocab, kB, bytes) + kernels::kMatMulWorkspace;
      RETURN_IF_ERROR(ReserveWorkspace(stream_.device, workspace));
      stream_ = EngineStream(stream_.device);
      const kernels::CrossEntropyInputs in = {
          .hidden = hidden, .weight = weight, .labels = labels, .scored = scored, .logits_bytes = bytes};
      RETURN_IF_ERROR(Report(
          absl::StrCat("cross_entropy_both_", mib, "mib"), 0, 3 * product,
          [&] {
            return kernels::ForwardBackward(kernels::CrossEntropyForwardBackward{.in = in,
                                                                                 .d_loss = d_loss,
                                                                                 .log_prob = log_prob,
                                                                                 .dhidden = dhidden,
                                                                                 .dweight = dweight,
                                                                                 .accumulate_dweight = false},
                                            stream_);
          },
          workspace));
    }
    const kernels::CrossEntropyInputs in = {.hidden = hidden, .weight = weight, .labels = labels, .scored = scored};
    RETURN_IF_ERROR(Report("cross_entropy_forward", 0, product, [&] {
      return kernels::Forward(kernels::CrossEntropyForward{.in = in, .log_prob = log_prob}, stream_);
    }));
    // What it is held against: the product alone, which has to store the logits.
    if (!IsWanted("cross_entropy_product")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const RandomTensor logits, Make(kB, {s_.tokens, s_.vocab}));
    return Report("cross_entropy_product", 0, product, [&] {
      return kernels::Run(kernels::MatMul{.a = hidden, .b = weight, .transpose_b = true, .c = logits}, stream_);
    });
  }

  // One token of each sequence and the keys and values before it; the longest sequence is twice the shortest.
  absl::Status Decode(int64_t sequences, int64_t longest) {
    const std::string name = absl::StrCat("paged_attention_", sequences, "x", longest);
    if (!IsWanted(name)) return absl::OkStatus();
    constexpr int64_t kPage = 16;
    const int64_t width = (longest + kPage - 1) / kPage, pages = sequences * width;
    std::vector<int32_t> table(static_cast<size_t>(pages)), rows(static_cast<size_t>(sequences)), positions;
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    std::iota(rows.begin(), rows.end(), 0);
    double keys = 0;
    for (int64_t i = 0; i < sequences; ++i) {
      const int64_t length = longest / 2 + longest / 2 * (i + 1) / sequences;
      positions.push_back(static_cast<int32_t>(length - 1));
      keys += static_cast<double>(length);
    }
    std::shuffle(positions.begin(), positions.end(), std::mt19937(2));
    ASSIGN_OR_RETURN(const RandomTensor q, Make(kB, {sequences, s_.heads, s_.head_dim}));
    ASSIGN_OR_RETURN(const RandomTensor out, Make(kB, {sequences, s_.heads, s_.head_dim}));
    ASSIGN_OR_RETURN(const RandomTensor k_cache, Make(kB, {pages, kPage, s_.kv_heads, s_.head_dim}));
    ASSIGN_OR_RETURN(const RandomTensor v_cache, Make(kB, {pages, kPage, s_.kv_heads, s_.head_dim}));
    ASSIGN_OR_RETURN(const RandomTensor device_table, Make(DType::kInt32, {sequences, width}));
    ASSIGN_OR_RETURN(const RandomTensor device_rows, Make(DType::kInt32, {sequences}));
    ASSIGN_OR_RETURN(const RandomTensor device_positions, Make(DType::kInt32, {sequences}));
    RETURN_IF_ERROR(CopyTensor(kernels::ConstTensorView(table.data(), {sequences, width}), device_table));
    RETURN_IF_ERROR(CopyTensor(kernels::ConstTensorView(rows.data(), {sequences}), device_rows));
    RETURN_IF_ERROR(CopyTensor(kernels::ConstTensorView(positions.data(), {sequences}), device_positions));
    const double bytes = keys * 4 * static_cast<double>(s_.kv_heads * s_.head_dim);
    return Report(name, bytes, 0, [&] {
      return kernels::Forward(kernels::PagedAttention{.q = q,
                                                      .k_cache = k_cache,
                                                      .v_cache = v_cache,
                                                      .block_table = device_table,
                                                      .cu_seqlens = {},
                                                      .context_lengths = {},
                                                      .sequences = device_rows,
                                                      .positions = device_positions,
                                                      .scale = 1.0f / std::sqrt(static_cast<float>(s_.head_dim)),
                                                      .out = out},
                              stream_);
    });
  }

  absl::Status Decoding() {
    for (const auto& [sequences, longest] : {std::pair<int64_t, int64_t>(256, 1024), {512, 512}, {16, 4096}}) {
      RETURN_IF_ERROR(Decode(sequences, longest));
    }
    return absl::OkStatus();
  }

  absl::Status Attention() {
    if (!IsWanted("attention_forward") && !IsWanted("attention_backward")) return absl::OkStatus();
    // Both models' heads at 16,384 tokens, as attention is usually quoted.
    const int64_t tokens = 16384, room = 16;
    std::vector<int32_t> cu_seqlens, padded;
    for (int64_t at = 0; at <= tokens; at += s_.sequence) cu_seqlens.push_back(static_cast<int32_t>(at));
    padded = cu_seqlens;
    padded.resize(static_cast<size_t>(room + 1), static_cast<int32_t>(tokens));
    ASSIGN_OR_RETURN(const RandomTensor device_seqlens, Make(DType::kInt32, {room + 1}));
    RETURN_IF_ERROR(CopyTensor(kernels::ConstTensorView(padded.data(), {room + 1}), device_seqlens));
    ASSIGN_OR_RETURN(const RandomTensor bounds, Make(DType::kInt32, {4, room + 1}));
    const Shape q_shape = {tokens, s_.heads, s_.head_dim}, kv_shape = {tokens, s_.kv_heads, s_.head_dim};
    ASSIGN_OR_RETURN(const RandomTensor q, Make(kB, q_shape));
    ASSIGN_OR_RETURN(const RandomTensor k, Make(kB, kv_shape));
    ASSIGN_OR_RETURN(const RandomTensor v, Make(kB, kv_shape));
    ASSIGN_OR_RETURN(const RandomTensor out, Make(kB, q_shape));
    ASSIGN_OR_RETURN(const RandomTensor dout, Make(kB, q_shape));
    ASSIGN_OR_RETURN(const RandomTensor dq, Make(kB, q_shape));
    ASSIGN_OR_RETURN(const RandomTensor dk, Make(kB, kv_shape));
    ASSIGN_OR_RETURN(const RandomTensor dv, Make(kB, kv_shape));
    ASSIGN_OR_RETURN(const RandomTensor logsumexp, Make(kF, {s_.heads, tokens}));
    RETURN_IF_ERROR(kernels::Run(kernels::SequenceBounds{.cu_seqlens = device_seqlens,
                                                         .q_heads = s_.heads,
                                                         .kv_heads = s_.kv_heads,
                                                         .head_dim = s_.head_dim,
                                                         .bounds = bounds},
                                 stream_));
    const float scale = 1.0f / std::sqrt(static_cast<float>(s_.head_dim));
    // Causal: half of the square; two products forward, five backward.
    const double pair = 2.0 * static_cast<double>(tokens) * static_cast<double>(s_.sequence) / 2 *
                        static_cast<double>(s_.heads * s_.head_dim);
    const std::string shape = absl::StrCat("_", tokens / s_.sequence, "x", s_.sequence);
    const kernels::AttentionForward forward = {.q = q,
                                               .k = k,
                                               .v = v,
                                               .cu_seqlens = cu_seqlens,
                                               .bounds = bounds,
                                               .longest = tokens,
                                               .scale = scale,
                                               .out = out,
                                               .logsumexp = logsumexp};
    RETURN_IF_ERROR(
        Report("attention_forward" + shape, 0, 2 * pair, [&] { return kernels::Forward(forward, stream_); }));
    for (const bool deterministic : {false, true}) {
      kernels::AttentionBackward backward = {.dout = dout,
                                             .q = q,
                                             .k = k,
                                             .v = v,
                                             .out = out,
                                             .logsumexp = logsumexp,
                                             .cu_seqlens = cu_seqlens,
                                             .bounds = bounds,
                                             .longest = deterministic ? s_.sequence : tokens,
                                             .scale = scale,
                                             .deterministic = deterministic,
                                             .dq = dq,
                                             .dk = dk,
                                             .dv = dv};
      RETURN_IF_ERROR(
          Report(absl::StrCat(deterministic ? "attention_backward_deterministic" : "attention_backward", shape), 0,
                 5 * pair, [&] { return kernels::Backward(backward, stream_); }));
    }
    return absl::OkStatus();
  }

  const KernelBenchOptions& options_;
  const Sizes s_;
  const Ceiling ceiling_;
  kernels::Stream stream_;
  uint64_t seed_ = 0;
};

}  // namespace

absl::Status RunKernelBench(const KernelBenchOptions& options) {
  const kernels::Device device = options.stream.device;
  RETURN_IF_ERROR(ReserveWorkspace(device, int64_t{2} << 30));
  ASSIGN_OR_RETURN(const Ceiling ceiling, MeasureCeiling(EngineStream(device)));
  const nlohmann::ordered_json line = {{"run", "ceiling"},
                                       {"copy_gb_per_s", std::round(ceiling.copy_bytes_per_second / 1e9)},
                                       {"gemm_tflops", std::round(ceiling.gemm_flops_per_second / 1e11) / 10}};
  std::cout << line.dump() << std::endl;
  for (const Sizes& sizes : kSizes) {
    KernelBenchOptions with_workspace = options;
    with_workspace.stream = EngineStream(device);
    RETURN_IF_ERROR(Bench(with_workspace, sizes, ceiling).RunAll());
  }
  return absl::OkStatus();
}

}  // namespace sluice::engine
