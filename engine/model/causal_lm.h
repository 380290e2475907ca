// A decoder-only language model over packed micro-batches: loss, gradients, logits.
//
//   ASSIGN_OR_RETURN(auto model, CausalLm::Create(parameters.get(), {.token_slots = 1024, .backward = true}));
//   RETURN_IF_ERROR(parameters->ZeroGradients());
//   for (const MicroBatch& batch : step) {
//     ASSIGN_OR_RETURN(const LossSum loss, model->ForwardBackward(batch, 1.0 / tokens_of_the_step));
//   }
//
// Forward and backward are written out over buffers that are allocated once, for `token_slots` token rows; there is no
// graph. The same code runs on the CPU and on CUDA. On CUDA every call computes all token slots, so that shapes never
// change; on the CPU the unused tail is left out, because it costs and changes nothing.
// Not thread-safe: one engine thread owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/micro_batch.h"
#include "engine/loss/loss_sum.h"
#include "engine/model/decoder_layer.h"
#include "engine/model/device_memory.h"
#include "engine/model/parameters.h"

namespace sluice::engine {

struct CausalLmOptions {
  int64_t token_slots = 0;  // T: the largest (on CUDA: the only) number of slots of a micro-batch
  bool backward = true;     // false: no buffers for the backward; activations of one layer only
};

class CausalLm {
 public:
  // `parameters` is borrowed and must outlive the model; with options.backward it must have gradients.
  // ResourceExhausted where the device has no memory for the activations.
  static absl::StatusOr<std::unique_ptr<CausalLm>> Create(const Parameters* parameters, const CausalLmOptions& options);

  CausalLm(const CausalLm&) = delete;
  CausalLm& operator=(const CausalLm&) = delete;

  // Loss only.
  // InvalidArgument for all three: more slots than token_slots, arrays of unequal length, a token id or label that is
  // not in the vocabulary (naming its slot), a label in the tail, cu_seqlens that do not ascend from 0 to at most T.
  absl::StatusOr<LossSum> Forward(const MicroBatch& batch);

  // Loss, and the gradient of loss_scale * sum: added to the parameters' gradients.
  absl::StatusOr<LossSum> ForwardBackward(const MicroBatch& batch, double loss_scale);

  // log p(label) of each slot in the last Forward or ForwardBackward [T of that batch]; 0 where there is no label.
  const std::vector<float>& token_log_probs() const { return token_log_probs_; }

  // Logits of every used slot, row-major [used_slots, vocab_size]. For tests and small evaluations.
  absl::StatusOr<std::vector<float>> Logits(const MicroBatch& batch);

  // Bytes of all buffers this object holds; the kernels' own scratch is not in it.
  int64_t peak_bytes() const { return memory_.bytes(); }

 private:
  CausalLm(const Parameters* parameters, const CausalLmOptions& options);
  void Carve(Carver& carver);
  absl::Status Upload(const MicroBatch& batch);
  LayerContext Context(const MicroBatch& batch) const;
  const LayerActivations& Activations(int64_t layer) const;
  absl::Status ForwardLayers(const LayerContext& context);
  absl::Status BackwardLayers(const LayerContext& context);
  absl::StatusOr<LossSum> CollectLoss(const MicroBatch& batch);

  const Parameters* parameters_;
  const ModelConfig* config_;
  CausalLmOptions options_;
  DeviceMemory memory_;
  int64_t tokens_ = 0;  // rows in use by the batch being computed

  kernels::TensorView input_ids_;                    // [T] int32
  kernels::TensorView position_ids_;                 // [T] int32
  kernels::TensorView labels_;                       // [T] int32
  kernels::TensorView inv_freq_;                     // [D / 2] fp32
  std::vector<LayerActivations> layer_activations_;  // one per layer, or one for all without backward
  LayerScratch scratch_;
  LayerGradients gradients_;
  kernels::TensorView final_residual_;  // [T, H]
  kernels::TensorView final_rstd_;      // [T] fp32
  kernels::TensorView hidden_;          // [T, H] after the final norm
  kernels::TensorView loss_gradient_;   // [T] fp32
  kernels::TensorView log_prob_;        // [T] fp32
  std::vector<float> token_log_probs_;
};

}  // namespace sluice::engine
