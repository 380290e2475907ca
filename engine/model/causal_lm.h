// A decoder-only language model over packed micro-batches: loss, gradients, logits. With a value head in place of the
// language-model head (ModelConfig::value_head): values and their gradients (causal_lm_values.cc).
//
//   ASSIGN_OR_RETURN(auto model, CausalLm::Create(parameters.get(), {.token_slots = 1024, .backward = true}));
//   RETURN_IF_ERROR(model->ResetLoss());
//   for (const MicroBatch& batch : step) {
//     RETURN_IF_ERROR(model->ForwardBackward(batch, 1.0 / tokens_of_the_step, first ? kOverwrite : kAccumulate));
//   }
//   ASSIGN_OR_RETURN(const double loss_sum, model->ReadLoss());
//
// Forward and backward are written out over buffers that are allocated once, for `token_slots` token rows; there is no
// graph of operations. The same code runs on the CPU and on CUDA. On CUDA every call computes all token slots, so that
// shapes never change: the forward and the backward of the layers are each recorded as a CUDA graph at their second use
// and launched as one from then on, calls only issue work, and nothing waits for the device but ReadLoss,
// TokenLogProbs and Logits. On the CPU the unused tail is left out, because it costs and changes nothing.
// Not thread-safe: one engine thread owns it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/data/micro_batch.h"
#include "engine/device/cuda_graph.h"
#include "engine/device/device_memory.h"
#include "engine/model/batch_upload.h"
#include "engine/model/decoder_layer.h"
#include "engine/model/gradient_buckets.h"
#include "engine/model/parameters.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/distillation/distillation.h"

namespace sluice::engine {

struct CausalLmOptions {
  int64_t token_slots = 0;  // T: the largest (on CUDA: the only) number of slots of a micro-batch
  bool backward = true;     // false: no buffers for the backward; activations of one layer only
  Recompute recompute = Recompute::kSelective;
  bool deterministic = false;  // of attention's backward on CUDA; everything else always is
  bool cuda_graphs = true;     // false: every kernel is launched by itself
  // Buffers for Score and for losses of log-probabilities and entropies: 12 bytes a slot.
  bool token_losses = false;
  // Buffers for losses with a teacher: 4 bytes a slot.
  bool distillation = false;
  int64_t ranks = 1;  // over which gradients are summed (GradientUse::sum_over)
  // They are summed in pieces of about this size.
  int64_t bucket_bytes = int64_t{256} << 20;
  // Bound of the logits held at once on CUDA; at least one row is.
  int64_t logits_bytes = int64_t{1000} << 20;
};

// The batches that one set of attention plans and recorded graphs serves.
struct AttentionRoom {
  int64_t sequences = 0;  // at most so many
  int64_t longest = 0;    // of at most so many tokens
  friend auto operator<=>(const AttentionRoom&, const AttentionRoom&) = default;
};

enum class GradientMode : uint8_t { kOverwrite, kAccumulate };

// What a backward does with the parameters' gradients.
struct GradientUse {
  // NOLINTNEXTLINE(google-explicit-constructor): most callers have but a mode.
  GradientUse(GradientMode mode, Communicator* sum_over = nullptr) : mode(mode), sum_over(sum_over) {}

  GradientMode mode;
  // Set with the last micro-batch of a step: gradients are summed over its ranks as they become complete, beside the
  // rest of the backward. Every rank makes one such call a step or, where it has no micro-batch, calls SumGradients.
  // Borrowed; the same communicator in all calls of a model.
  Communicator* sum_over;
};

// Of a micro-batch, slot by slot; 0 where a slot has no label.
struct TokenScores {
  std::vector<float> log_prob;  // [T] log p(label), in nats
  std::vector<float> entropy;   // [T] of the distribution the label is from; empty where it was not asked for
};

// Derivatives of a loss by these, slot by slot; not read where a slot has no label.
struct TokenGradients {
  std::vector<float> d_log_prob;  // [T]
  std::vector<float> d_entropy;   // [T], or empty: the loss does not depend on it
};

// How a distribution is looked at.
struct TokenScoring {
  float temperature = 1.0f;  // logits are divided by it; > 0
  bool entropy = false;
};

// A teacher's part in a loss: kernels/distillation/distillation.h has the formulas.
struct Teaching {
  kernels::ConstTensorView hidden;  // [T, G]: the teacher's HiddenStates of the same batch
  kernels::ConstTensorView head;    // [V, G]; ids that only one of the two heads has are left out of both
  kernels::Divergence divergence = kernels::Divergence::kForwardKl;
  int64_t top_k = 0;
  float temperature = 1.0f;
  double kd_ratio = 1.0;  // weight of the divergence; that of -log p(label) is 1 - kd_ratio
};

class CausalLm {
 public:
  // `parameters` is borrowed and must outlive the model; with options.backward it must have gradients.
  // ResourceExhausted where the device has no memory for activations or workspace.
  static absl::StatusOr<std::unique_ptr<CausalLm>> Create(const Parameters* parameters, const CausalLmOptions& options);

  CausalLm(const CausalLm&) = delete;
  CausalLm& operator=(const CausalLm&) = delete;

  // Adds -log p(label) of the scored slots to the loss.
  // InvalidArgument for both: more slots than token_slots, arrays of unequal length, a token id or label that is
  // not in the vocabulary (naming its slot), a label in the tail, cu_seqlens that do not ascend from 0 to at most T.
  absl::Status Forward(const MicroBatch& batch);

  // The same, and the gradient of loss_scale * sum: into the parameters' gradients, as `use` says.
  absl::Status ForwardBackward(const MicroBatch& batch, double loss_scale, GradientUse use);

  // What a rank without a micro-batch calls where its peers' backward sums: its part of those sums is the gradients as
  // they are.
  absl::Status SumGradients(Communicator& communicator);

  // For losses other than that sum. Both wait for the device and leave the loss sum alone.
  // FailedPrecondition: the model was made without token_losses.
  absl::StatusOr<TokenScores> Score(const MicroBatch& batch, const TokenScoring& scoring);
  // `loss` gives the derivatives once the scores are known; what it returns for another number of slots is
  // InvalidArgument, and its own error is passed on (with gradients left undefined in kOverwrite).
  absl::Status ForwardBackward(const MicroBatch& batch, const TokenScoring& scoring,
                               absl::FunctionRef<absl::StatusOr<TokenGradients>(const TokenScores&)> loss,
                               GradientUse use);

  // With a teacher (causal_lm_distillation.cc); FailedPrecondition where the model was made without `distillation`.
  // Adds kd_ratio divergence - (1 - kd_ratio) log p(label) of the scored slots to the loss, and the sums of divergence
  // and -log p(label) to distillation_sums(), which ResetLoss clears too; [2] fp64 on the device.
  absl::Status Forward(const MicroBatch& batch, const Teaching& teaching);
  // And the gradient of loss_scale times what is added to the loss.
  absl::Status ForwardBackward(const MicroBatch& batch, const Teaching& teaching, double loss_scale, GradientUse use);
  kernels::TensorView distillation_sums() const { return distillation_sums_; }
  // The states that the head reads, of the slots that are computed [T, H]; there until the next call. For a teacher.
  absl::StatusOr<kernels::ConstTensorView> HiddenStates(const MicroBatch& batch);

  // With a value head; FailedPrecondition without, as are all the calls above with one. Labels are not read.
  // The values of all used slots, slot by slot; 0 in the tail. Waits for the device.
  absl::StatusOr<std::vector<float>> Values(const MicroBatch& batch);
  // `loss` gives the derivatives by the values, [T] (those of the tail are not read); otherwise as above.
  absl::Status ForwardBackward(
      const MicroBatch& batch,
      absl::FunctionRef<absl::StatusOr<std::vector<float>>(const std::vector<float>& values)> loss, GradientUse use);

  // The sum of -log p(label), in nats, over all batches since ResetLoss; [1] fp64 on the device.
  absl::Status ResetLoss();
  kernels::TensorView loss_sum() const { return loss_sum_; }
  absl::StatusOr<double> ReadLoss() const;

  // log p(label) of each slot of the last batch [its T]; 0 where there is no label.
  absl::StatusOr<std::vector<float>> TokenLogProbs() const;

  // Logits of every used slot, row-major [used_slots, vocab_size]. For tests and small evaluations.
  absl::StatusOr<std::vector<float>> Logits(const MicroBatch& batch);

  // After the parameters moved in memory: what was recorded points to where they were.
  void ForgetRecorded() { recorded_.clear(); }

  // Bytes of all buffers this object holds; the device's workspace (engine_stream.h) is not in it.
  int64_t bytes() const { return memory_.bytes() + BatchUpload::DeviceBytes(options_.token_slots); }

  // bytes() of a model that is not made yet.
  static int64_t BytesFor(const ModelConfig& config, kernels::DType dtype, const CausalLmOptions& options);

  // What the head and the products in it take of the workspace on CUDA; attention may take more.
  static int64_t HeadWorkspace(const ModelConfig& config, kernels::DType dtype, const CausalLmOptions& options);

 private:
  // What a recorded graph holds.
  enum class Segment : uint8_t {
    kForward,
    kBackwardOverwrites,
    kBackwardAccumulates,
    kLastBackwardOverwrites,  // and sums over ranks, as the next
    kLastBackwardAccumulates
  };
  CausalLm(const Parameters* parameters, const ModelConfig* config, const CausalLmOptions& options);
  void Carve(const ModelConfig& config, kernels::DType dtype, Carver& carver);
  absl::Status Reserve(const AttentionRoom& room);
  absl::Status Upload(const MicroBatch& batch);
  absl::Status RequireHead(bool value_head) const;
  LayerContext Context(const MicroBatch& batch, GradientMode mode) const;
  kernels::TensorView Bounds() const;  // of room_, for attention in cuDNN; else empty
  // Runs `body`, or what was recorded of it.
  absl::Status RunRecorded(Segment segment, absl::FunctionRef<absl::Status()> body);
  absl::Status RunForward(const LayerContext& context);
  absl::Status RunBackward(const LayerContext& context, GradientUse use);
  absl::Status BackwardOfNothing(GradientUse use);
  absl::Status ForwardLayers(const LayerContext& context);
  absl::Status BackwardLayers(const LayerContext& context, Communicator* sum_over);
  // Begins the sums of what is complete after a layer's backward.
  absl::Status BeginSums(int64_t after_layer, Communicator* sum_over);
  // The rows of gradients_.residual into the embedding's gradient; with sum_over all that is left of the sums too.
  absl::Status EmbeddingBackward(int64_t rows, Communicator* sum_over);
  absl::Status ClearOverwritten();
  absl::Status AddLoss();
  // What the head reads of the last batch.
  kernels::CrossEntropyInputs HeadInputs() const;
  absl::StatusOr<TokenScores> ScoreForwarded(const TokenScoring& scoring);
  // InvalidArgument: the teacher's states are of another batch.
  absl::Status CheckTeaching(const Teaching& teaching) const;
  kernels::DistillationInputs DistillationInputsOf(const Teaching& teaching) const;
  absl::Status AddDistillationLoss(const Teaching& teaching);

  const Parameters* parameters_;
  const ModelConfig* config_;
  CausalLmOptions options_;
  EmbeddingSum embedding_sum_;
  std::vector<GradientBucket> buckets_;  // empty without backward
  kernels::Stream stream_;
  bool recordable_ = false;
  DeviceMemory memory_;
  std::unique_ptr<BatchUpload> upload_;
  int64_t slots_ = 0;   // T of the last batch
  int64_t tokens_ = 0;  // rows in use by it
  AttentionRoom room_;  // of the last batch
  std::set<AttentionRoom> reserved_;
  std::map<std::pair<AttentionRoom, Segment>, RecordedWork> recorded_;  // by room and segment

  kernels::TensorView inv_freq_;                     // [D / 2] fp32
  kernels::TensorView cos_sin_;                      // [T, D] fp32
  kernels::TensorView bounds_;                       // [4 * (T + 1)] int32, CUDA only
  LayerActivations shared_;                          // of all layers
  std::vector<LayerActivations> layer_activations_;  // one per layer, or one for all without backward
  kernels::TensorView branch_;                       // [T, H]
  LayerGradients gradients_;
  kernels::TensorView gathered_ids_;    // [ranks * T] int32; empty where rows are not exchanged
  kernels::TensorView gathered_rows_;   // [ranks * T, H]
  kernels::TensorView final_residual_;  // [T, H]
  kernels::TensorView final_rstd_;      // [T] fp32
  kernels::TensorView hidden_;          // [T, H] after the final norm; then its gradient
  kernels::TensorView loss_gradient_;   // [T] fp32
  kernels::TensorView log_prob_;        // [T] fp32; with a value head the values
  kernels::TensorView loss_sum_;        // [1] fp64
  // With token_losses; else empty.
  kernels::TensorView logsumexp_;         // [T] fp32
  kernels::TensorView entropy_;           // [T] fp32
  kernels::TensorView entropy_gradient_;  // [T] fp32
  // With distillation; else empty.
  kernels::TensorView divergence_;         // [T] fp32
  kernels::TensorView distillation_sums_;  // [2] fp64
};

}  // namespace sluice::engine
