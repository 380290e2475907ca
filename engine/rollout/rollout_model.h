// The forward pass of a rollout: new tokens of many sequences against a key/value cache in pages, logits for those that
// draw a token next.
//
// Keys, values and activations live in blocks of memory that exist only between Allocate and Free, so that a trainer
// has the device for itself in its own phase. The weights are the trainer's, read in place. On the CPU the logits of a
// sequence are the same bits in any batch and however its tokens were cut into passes (kernels/matmul/matmul.h,
// kernels/paged_attention/paged_attention.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/cuda_graph.h"
#include "engine/device/device_memory.h"
#include "engine/model/decoder_layer.h"
#include "engine/model/parameters.h"

namespace sluice::engine {

struct RolloutModelOptions {
  int64_t blocks = 0;              // pages of the cache
  int64_t block_size = 0;          // tokens a page
  int64_t max_batched_tokens = 0;  // of a pass
  int64_t max_sequences = 0;       // of a pass
  int64_t max_model_len = 0;       // of a sequence
};

// One sequence of a pass.
struct PassSequence {
  std::span<const int32_t> token_ids;  // to compute; at least 1
  int64_t computed = 0;                // tokens before them, in the cache
  std::span<const int32_t> blocks;     // its pages, for computed + token_ids.size() tokens at least
  bool wants_logits = false;           // after the last of token_ids
};

class RolloutModel {
 public:
  // `parameters` is borrowed, must outlive the model and may change between passes.
  RolloutModel(const Parameters* parameters, const RolloutModelOptions& options);

  RolloutModel(const RolloutModel&) = delete;
  RolloutModel& operator=(const RolloutModel&) = delete;

  // ResourceExhausted, naming the bytes, where the device has no memory. Nothing to do if it is there.
  absl::Status Allocate();
  void Free();
  bool allocated() const { return memory_.bytes() > 0; }
  int64_t bytes() const { return memory_.bytes(); }
  // bytes() after Allocate.
  static int64_t BytesFor(const Parameters& parameters, const RolloutModelOptions& options);

  // Logits [R, V] fp32 on the parameters' device, one row for each sequence that wants them, in order; valid until the
  // next call. Writes the sequences' keys and values to their pages. On CUDA the pass is issued, not waited for; what
  // came with as many rows before is recorded as a CUDA graph and launched as one.
  // FailedPrecondition without memory. REQUIRES: ids within the vocabulary; sizes within the options.
  absl::StatusOr<kernels::ConstTensorView> Forward(std::span<const PassSequence> sequences);

 private:
  struct LayerCache {
    kernels::TensorView keys;    // [blocks, block_size, kv_heads, D], rotated
    kernels::TensorView values;  // likewise
  };
  // What a pass is, on the host.
  struct Pass {
    std::vector<int32_t> ids, positions, slots, sequences;  // by token
    std::vector<int32_t> cu_seqlens, context_lengths;
    std::vector<int32_t> table;       // [S, table_width()]
    std::vector<int32_t> logit_rows;  // the token rows whose logits are wanted
  };
  // How many rows a pass computes: of tokens, and of logits. Little else decides what is launched.
  struct PassRows {
    int64_t tokens = 0;
    int64_t logits = 0;
    friend auto operator<=>(const PassRows&, const PassRows&) = default;
  };

  void Carve(Carver& carver);
  int64_t table_width() const;
  Pass Describe(std::span<const PassSequence> sequences) const;
  absl::Status Upload(const Pass& pass);
  absl::Status Compute(const Pass& pass, const PassRows& rows);
  absl::Status ForwardLayers(const Pass& pass, const LayerContext& context);
  absl::Status Head(int64_t logit_rows, const LayerContext& context);
  void ForgetWhatMoved();

  const Parameters* parameters_;
  RolloutModelOptions options_;
  DeviceMemory memory_;
  std::map<PassRows, RecordedWork> recorded_;        // on CUDA
  std::pair<const void*, const void*> recorded_at_;  // cache and weights that the graphs point to

  std::vector<LayerCache> caches_;
  kernels::TensorView inputs_;                                        // int32: the six below, one after the other
  kernels::TensorView token_ids_, position_ids_, slots_, sequences_;  // [T]
  kernels::TensorView logit_rows_;                                    // [S]
  kernels::TensorView block_table_;                                   // [S * pages of the longest sequence]
  kernels::TensorView inv_freq_;                                      // [D / 2] fp32
  kernels::TensorView cos_sin_;                                       // [T, D] fp32
  LayerActivations activations_;
  kernels::TensorView branch_;          // [T, H]
  kernels::TensorView final_residual_;  // [T, H]
  kernels::TensorView final_rstd_;      // [T] fp32
  kernels::TensorView hidden_;          // [T, H] after the final norm
  kernels::TensorView head_input_;      // [S, H]
  kernels::TensorView logits_;          // [S, V] fp32
};

}  // namespace sluice::engine
