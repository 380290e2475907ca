// Continues one sequence with a model's current weights, keeping the keys and values of the tokens seen.
//
//   ASSIGN_OR_RETURN(auto session, InferenceSession::Create(parameters, {.max_tokens = 2048}));
//   ASSIGN_OR_RETURN(const GeneratedTokens out, GenerateGreedy(*session, prompt_ids, 64, config.eos_token_ids));
//
// One sequence at a time, for looking at a model; serving many is the rollout engine's work. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/device_memory.h"
#include "engine/model/decoder_layer.h"
#include "engine/model/parameters.h"

namespace sluice::engine {

struct InferenceOptions {
  int64_t max_tokens = 0;      // prompt and continuation together
  int64_t chunk_tokens = 256;  // prompt tokens computed at once; bounds the buffers
};

class InferenceSession {
 public:
  // `parameters` is borrowed, must outlive the session and may change between sequences (after Reset).
  static absl::StatusOr<std::unique_ptr<InferenceSession>> Create(const Parameters* parameters,
                                                                  const InferenceOptions& options);

  InferenceSession(const InferenceSession&) = delete;
  InferenceSession& operator=(const InferenceSession&) = delete;

  // Forgets the sequence.
  void Reset() { length_ = 0; }

  // Adds tokens to the sequence and returns the logits after the last of them [vocab_size].
  // InvalidArgument: none given, or an id outside of the vocabulary. OutOfRange: the sequence would pass max_tokens.
  absl::StatusOr<std::vector<float>> Append(std::span<const int32_t> token_ids);

  int64_t length() const { return length_; }  // tokens of the sequence so far
  int64_t max_tokens() const { return options_.max_tokens; }
  const ModelConfig& config() const { return parameters_->config(); }

 private:
  InferenceSession(const Parameters* parameters, const InferenceOptions& options);
  void Carve(Carver& carver);
  absl::Status AppendChunk(std::span<const int32_t> token_ids);
  absl::Status CachedAttention(const LayerContext& context, int64_t layer);
  absl::StatusOr<std::vector<float>> LastLogits(int64_t chunk_tokens);

  const Parameters* parameters_;
  InferenceOptions options_;
  DeviceMemory memory_;
  int64_t length_ = 0;

  struct LayerCache {
    kernels::TensorView keys;    // [max_tokens, kv_heads, D], rotated
    kernels::TensorView values;  // [max_tokens, kv_heads, D]
  };
  std::vector<LayerCache> caches_;
  kernels::TensorView token_ids_;     // [chunk] int32
  kernels::TensorView position_ids_;  // [chunk] int32
  kernels::TensorView inv_freq_;      // [D / 2] fp32
  LayerActivations activations_;
  kernels::TensorView cos_sin_;         // [chunk, D] fp32
  kernels::TensorView branch_;          // [chunk, H]
  kernels::TensorView final_residual_;  // [1, H]
  kernels::TensorView final_rstd_;      // [1] fp32
  kernels::TensorView hidden_;          // [1, H]
  kernels::TensorView logits_;          // [1, V] fp32
};

struct GeneratedTokens {
  std::vector<int32_t> token_ids;  // without the token that ended the text
  bool stopped = false;            // a stop token came; false: max_new_tokens or the session's max_tokens was reached
};

// Starts a new sequence with `prompt_ids` and takes the most likely token each time (the lowest id of equal ones).
// `on_token`, if given, sees each new token as it comes; false ends the generation. Errors as Append.
absl::StatusOr<GeneratedTokens> GenerateGreedy(InferenceSession& session, std::span<const int32_t> prompt_ids,
                                               int64_t max_new_tokens, std::span<const int32_t> stop_token_ids,
                                               const std::function<bool(int32_t)>& on_token = nullptr);

}  // namespace sluice::engine
