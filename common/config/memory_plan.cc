#include "common/config/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/preference.h"
#include "common/config/readable.h"
#include "common/config/recipes.h"

namespace sluice {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kIntegerBytes = 4;

// kernels/matmul/matmul.h kMatMulWorkspace; CausalLmOptions::logits_bytes; kernels/cross_entropy kDefaultLogitsBytes.
constexpr int64_t kProductWorkspace = int64_t{32} << 20;
constexpr int64_t kCudaLogitsBytes = int64_t{1000} << 20;
constexpr int64_t kCpuLogitsBytes = int64_t{64} << 20;

// kernels/distillation: kDefaultDistillationBytes, and the rows of fp32 that it holds for a token.
constexpr int64_t kDistillationLogitsBytes = int64_t{256} << 20;
constexpr int64_t kDistillationRows = 7;

// Integers of a token slot on the device: BatchUpload's ids, positions, labels, scored slots and bounds, and the four
// rows of CausalLm::bounds_.
constexpr int64_t kSlotIntegers = 5 + 4;

int64_t StorageBytes(const v1::EngineSpec& engine) { return engine.model_dtype() == "bf16" ? 2 : 4; }

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// In which modes of engine.activation_checkpointing each layer has a buffer of its own. In the others, and without a
// backward, all layers share one.
enum class Kept : uint8_t {
  kAlways,
  kUnlessFull,
  kOnlyNone,
  kNever,
};

// One row of LayerActivations (engine/model/decoder_layer.h).
struct LayerBuffer {
  const char* name;
  int64_t elements;  // of a token slot
  int64_t element_bytes;
  Kept kept;
};

std::vector<LayerBuffer> LayerBuffers(const ModelFacts& m, int64_t storage) {
  const int64_t hidden = m.hidden_size, intermediate = m.intermediate_size;
  const int64_t query = m.attention_heads * m.head_dim, key_value = m.key_value_heads * m.head_dim;
  return {
      {"residual_in", hidden, storage, Kept::kAlways},
      {"rstd_in", 1, kFloatBytes, Kept::kUnlessFull},
      {"normed_in", hidden, storage, Kept::kOnlyNone},
      {"qkv", query + 2 * key_value, storage, m.qk_norm ? Kept::kUnlessFull : Kept::kNever},
      {"q", query, storage, Kept::kUnlessFull},
      {"k", key_value, storage, Kept::kUnlessFull},
      {"v", key_value, storage, Kept::kUnlessFull},
      {"q_rstd", m.qk_norm ? m.attention_heads : 0, kFloatBytes, Kept::kUnlessFull},
      {"k_rstd", m.qk_norm ? m.key_value_heads : 0, kFloatBytes, Kept::kUnlessFull},
      {"attention", query, storage, Kept::kUnlessFull},
      {"logsumexp", m.attention_heads, kFloatBytes, Kept::kUnlessFull},
      {"residual_mid", hidden, storage, Kept::kUnlessFull},
      {"rstd_mid", 1, kFloatBytes, Kept::kUnlessFull},
      {"normed_mid", hidden, storage, Kept::kOnlyNone},
      {"gate_up", 2 * intermediate, storage, Kept::kUnlessFull},
      {"swiglu", intermediate, storage, Kept::kOnlyNone},
  };
}

bool LayersKeep(Kept kept, const std::string& mode) {
  switch (kept) {
    case Kept::kAlways:
      return true;
    case Kept::kUnlessFull:
      return mode != "full";
    case Kept::kOnlyNone:
      return mode == "none";
    case Kept::kNever:
      return false;
  }
  return false;
}

// LayerGradients: residual, normed, swiglu, attention, q, k, v.
int64_t GradientElements(const ModelFacts& m) {
  const int64_t query = m.attention_heads * m.head_dim, key_value = m.key_value_heads * m.head_dim;
  return 2 * m.hidden_size + m.intermediate_size + 2 * query + 2 * key_value;
}

// The buffers of CausalLm that belong to no layer.
int64_t ModelBytesPerSlot(const ModelFacts& m, int64_t storage) {
  const int64_t branch_final_residual_hidden = 3 * m.hidden_size;
  const int64_t rstd_loss_gradient_log_prob = 3;
  return branch_final_residual_hidden * storage + (m.head_dim + rstd_loss_gradient_log_prob) * kFloatBytes +
         kSlotIntegers * kIntegerBytes;
}

// The rows of the embedding's gradient that ranks exchange, where they are less than the whole gradient
// (engine/model/gradient_buckets.h): their ids and the rows of all ranks.
int64_t ExchangedBytesPerSlot(const ModelFacts& m, int64_t ranks, int64_t slots, int64_t storage) {
  if (ranks == 1 || ranks * slots * storage >= m.vocab_size * kFloatBytes) return 0;
  return ranks * (m.hidden_size * storage + kIntegerBytes);
}

int64_t ActivationBytesPerSlot(const v1::EngineSpec& engine, const ModelFacts& model) {
  const int64_t storage = StorageBytes(engine);
  const bool backward = !engine.forward_only();
  int64_t bytes = ModelBytesPerSlot(model, storage) + (backward ? GradientElements(model) * storage : 0);
  for (const LayerBuffer& buffer : LayerBuffers(model, storage)) {
    const bool kept = backward && LayersKeep(buffer.kept, engine.activation_checkpointing());
    bytes += (kept ? model.layers : 1) * buffer.elements * buffer.element_bytes;
  }
  return bytes;
}

// kernels/cross_entropy CrossEntropyWorkspace: a piece of logits, in whole blocks of 128 rows where the bound allows
// it, and its rows of hidden and of the gradient of hidden.
int64_t CrossEntropyBytes(const ModelFacts& m, int64_t slots, int64_t storage) {
  if (m.value_head) return 0;
  constexpr int64_t kRowBlock = 128;
  const int64_t row = RoundUp(m.vocab_size, 8) * storage;
  int64_t rows = std::max<int64_t>(kCudaLogitsBytes / row, 1);
  if (rows >= kRowBlock) rows = rows / kRowBlock * kRowBlock;
  rows = std::min(rows, RoundUp(slots, kRowBlock));
  return rows * (row + 2 * m.hidden_size * storage);
}

// The most sequences expected in one micro-batch: the mean of the data where it is known.
int64_t SequencesOf(const v1::JobSpec& spec, const Plan& plan) {
  int64_t sequences = std::max<int64_t>(1, plan.token_slots / spec.data().max_length());
  if (plan.expected_micro_batches && *plan.expected_micro_batches > 0) {
    const double rows = static_cast<double>(plan.rows_per_rank * SequencesPerRow(spec)) / *plan.expected_micro_batches;
    sequences = std::max(sequences, static_cast<int64_t>(std::ceil(rows)));
  }
  return sequences;
}

Plan::Memory CudaWorkspace(const v1::JobSpec& spec, const ModelFacts& model, const Plan& plan) {
  const int64_t products = CrossEntropyBytes(model, plan.token_slots, StorageBytes(spec.engine())) + kProductWorkspace;
  AttentionMemory attention = {.token_slots = plan.token_slots,
                               .heads = model.attention_heads,
                               .head_dim = model.head_dim,
                               .longest = std::min(spec.data().max_length(), plan.token_slots),
                               .sequences = SequencesOf(spec, plan),
                               .recordable = IsRecordable(spec.engine(), model.head_dim),
                               .deterministic = spec.engine().full_determinism()};
  const int64_t attention_bytes = BytesOf(attention);
  const char* const kProducts = model.value_head ? "matrix products" : "logits of some tokens, matrix products";
  if (!attention.recordable) {
    return {"workspace", products + attention_bytes, absl::StrCat(kProducts, ", scores of one sequence")};
  }
  if (attention_bytes <= products || spec.engine().forward_only()) return {"workspace", products, kProducts};
  return {"workspace", attention_bytes,
          attention.deterministic ? absl::StrCat("attention of ", FormatCount(attention.sequences), " sequences of ",
                                                 FormatCount(attention.longest), " tokens, deterministic")
                                  : "attention"};
}

// One kernel at a time: the cross-entropy's logits in fp32, or dk and dv by query head in attention's backward.
Plan::Memory CpuWorkspace(const v1::JobSpec& spec, const ModelFacts& model, int64_t slots) {
  const int64_t row = model.vocab_size * kFloatBytes;
  const int64_t logits = model.value_head ? 0 : std::clamp<int64_t>(kCpuLogitsBytes / row, 1, slots) * row;
  const int64_t attention =
      spec.engine().forward_only() ? 0 : 2 * slots * model.attention_heads * model.head_dim * kFloatBytes;
  return {"workspace", std::max(logits, attention), logits >= attention ? "logits of some tokens" : "attention"};
}

}  // namespace

std::string MemoryDevice(const v1::EngineSpec& engine) { return engine.device() == "cpu" ? "cpu" : "cuda"; }

bool IsRecordable(const v1::EngineSpec& engine, int64_t head_dim) {
  return engine.model_dtype() == "bf16" && head_dim % 8 == 0 && head_dim <= 128;
}

int64_t BytesOf(const AttentionMemory& a) {
  if (!a.recordable) return 16 * a.heads * a.longest * a.longest + 20 * a.heads * a.longest * a.head_dim;
  const int64_t by_query_head = 12 * a.token_slots * a.heads * a.head_dim;
  if (!a.deterministic) return by_query_head;
  const auto room = [&](int64_t wanted, int64_t least) {
    while (least < wanted) least *= 2;
    return std::min(least, a.token_slots);
  };
  const int64_t longest = room(a.longest, 128);
  return std::max(by_query_head, 2 * room(a.sequences, 1) * a.heads * longest * longest);
}

std::vector<Plan::Memory> MemoryOf(const v1::JobSpec& spec, const JobModels& models, const Plan& plan) {
  const ModelFacts& model = models.trained;
  const bool trains = !spec.engine().forward_only();
  const int64_t storage = StorageBytes(spec.engine());
  const int64_t slots = plan.token_slots;
  std::vector<Plan::Memory> memory;
  const auto add_per_parameter = [&](const std::string& part, const ModelFacts& facts, int64_t bytes) {
    memory.push_back({part, facts.parameters * bytes, absl::StrCat(bytes, " bytes a parameter")});
  };
  const auto add_parameters = [&](const std::string& whose, const ModelFacts& facts) {
    add_per_parameter(whose + "weights", facts, storage);
    if (!trains) return;
    // The 16 bits that bf16 weights leave out; fp32 weights are whole.
    if (storage == 2 && spec.optim().master_weights()) add_per_parameter(whose + "master weights", facts, 2);
    add_per_parameter(whose + "gradients", facts, kFloatBytes);
    add_per_parameter(whose + "moments", facts, spec.optim().moments_dtype() == "bf16" ? 4 : 8);
  };
  const auto add_activations = [&](const std::string& whose, const ModelFacts& facts) {
    int64_t per_slot = ActivationBytesPerSlot(spec.engine(), facts);
    if (trains) per_slot += ExchangedBytesPerSlot(facts, plan.ranks, slots, storage);
    memory.push_back({whose + "activations", slots * per_slot,
                      absl::StrCat(FormatCount(slots), " slots x ", FormatBytes(per_slot))});
  };
  add_parameters("", model);
  const auto add_forward_only = [&](const std::string& whose, const ModelFacts& facts) {
    v1::EngineSpec forward = spec.engine();
    forward.set_forward_only(true);
    const int64_t per_slot = ActivationBytesPerSlot(forward, facts);
    add_per_parameter(whose + " model", facts, storage);
    memory.push_back({whose + " activations", slots * per_slot,
                      absl::StrCat(FormatCount(slots), " slots x ", FormatBytes(per_slot))});
  };
  if (models.critic.has_value() && trains) {
    add_parameters("critic ", *models.critic);
    add_activations("critic ", *models.critic);
  }
  // With pools: of a rank of the actor's.
  const bool has_reference = plan.pools.empty() || ActorPool(plan.pools).reference;
  const bool has_rollout = plan.pools.empty() || ActorPool(plan.pools).rollout;
  if (NeedsReference(spec) && has_reference) add_forward_only("reference", models.reference.value_or(model));
  for (const JobModels::Reward& reward : models.rewards) {
    if (!has_rollout) break;
    add_forward_only(reward.label == "model" ? "reward" : absl::StrCat("reward ", reward.label), reward.facts);
  }
  if (!plan.dataflow.empty() && has_rollout) {
    const bool on_gpu = MemoryDevice(spec.engine()) == "cuda";
    const bool chosen = on_gpu && spec.rollout().kv_cache_tokens() == 0;
    const int64_t tokens = KvCacheTokens(spec, on_gpu);
    const int64_t per_token = 2 * model.layers * model.key_value_heads * model.head_dim * storage;
    memory.push_back({"key/value cache", tokens * per_token,
                      absl::StrCat(FormatCount(tokens), " tokens x ", FormatBytes(per_token),
                                   chosen ? ", fewer where the GPU has not the room" : "")});
  }
  add_activations("", model);
  if (KindOfRecipe(spec.recipe()) == RecipeKind::kDistillation) {
    const int64_t row = kDistillationRows * model.vocab_size * kFloatBytes;
    const int64_t rows = std::clamp<int64_t>(kDistillationLogitsBytes / row, 1, slots);
    memory.push_back(
        {"distillation", rows * row, absl::StrCat("logits of both models of ", FormatCount(rows), " tokens")});
  }
  memory.push_back(MemoryDevice(spec.engine()) == "cuda" ? CudaWorkspace(spec, model, plan)
                                                         : CpuWorkspace(spec, model, slots));
  return memory;
}

}  // namespace sluice
