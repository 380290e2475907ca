#include "engine/roles/memory_check.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/dataflow.h"
#include "common/config/memory_plan.h"
#include "common/config/readable.h"
#include "common/config/recipes.h"
#include "common/status_macros.h"
#include "engine/device/device_memory.h"
#include "engine/model/causal_lm.h"
#include "engine/model/parameter_layout.h"
#include "engine/optim/adamw_optimizer.h"
#include "engine/roles/job_options.h"
#include "kernels/attention/attention.h"
#include "kernels/distillation/distillation.h"

namespace sluice::engine {
namespace {

int64_t WorkspaceOf(const v1::JobSpec& spec, const ModelConfig& config, const RowLengths& rows) {
  const kernels::DType dtype = DTypeOf(spec.engine());
  const CausalLmOptions options = ModelOptions(spec);
  const int64_t products = CausalLm::HeadWorkspace(config, dtype, options);
  const bool recordable = kernels::IsCapturableAttention(dtype, config.head_dim);
  const int64_t longest = std::min(rows.longest > 0 ? rows.longest : spec.data().max_length(), options.token_slots);
  const double mean = rows.mean > 0 ? rows.mean : static_cast<double>(longest);
  const int64_t attention =
      BytesOf(AttentionMemory{.token_slots = options.token_slots,
                              .heads = config.heads,
                              .head_dim = config.head_dim,
                              .longest = longest,
                              .sequences = static_cast<int64_t>(std::ceil(options.token_slots / mean)),
                              .recordable = recordable,
                              .deterministic = options.deterministic});
  if (!recordable) return products + attention;  // LibTorch's memory lies beside the workspace
  return options.backward ? std::max(products, attention) : products;
}

// What the user can change, as long as it is not changed already; what costs least comes first.
std::vector<std::string> Remedies(const v1::JobSpec& spec) {
  std::vector<std::string> remedies = {
      absl::StrCat("lower data.max_token_len_per_gpu (now ", spec.data().max_token_len_per_gpu(), ")")};
  const bool bf16 = spec.engine().model_dtype() == "bf16";
  const auto offer = [&](bool possible, const char* remedy) {
    if (possible) remedies.push_back(remedy);
  };
  offer(!bf16, "set engine.model_dtype to bf16");
  if (spec.engine().forward_only()) return remedies;
  offer(spec.engine().full_determinism(), "set engine.full_determinism to false");
  offer(spec.engine().activation_checkpointing() == "none", "set engine.activation_checkpointing to selective or full");
  offer(spec.engine().activation_checkpointing() == "selective", "set engine.activation_checkpointing to full");
  offer(spec.optim().moments_dtype() != "bf16", "set optim.moments_dtype to bf16");
  offer(bf16 && spec.optim().master_weights(), "set optim.master_weights to false");
  return remedies;
}

}  // namespace

MemoryNeeds NeedsOnCuda(const v1::JobSpec& spec, const ModelConfig& config, bool optimizer, const RowLengths& rows,
                        const ModelConfig* reference) {
  const kernels::DType dtype = DTypeOf(spec.engine());
  const ParameterLayout layout(config);
  MemoryNeeds needs;
  needs.weights = layout.size() * kernels::SizeOf(dtype);
  if (!spec.engine().forward_only()) {
    needs.gradients = layout.size() * kernels::SizeOf(kernels::DType::kFloat32);
    if (optimizer) needs.optimizer = AdamWOptimizer::BytesFor(layout, dtype, OptimizerOptions(spec));
  }
  needs.activations = CausalLm::BytesFor(config, dtype, ModelOptions(spec));
  if (NeedsReference(spec)) {
    CausalLmOptions forward = ModelOptions(spec);
    forward.backward = false;
    const ModelConfig& compared = reference == nullptr ? config : *reference;
    needs.reference =
        ParameterLayout(compared).size() * kernels::SizeOf(dtype) + CausalLm::BytesFor(compared, dtype, forward);
  }
  needs.workspace = WorkspaceOf(spec, config, rows);
  if (KindOfRecipe(spec.recipe()) == RecipeKind::kDistillation) {
    const ModelConfig& teacher = reference == nullptr ? config : *reference;
    needs.workspace +=
        kernels::DistillationBytes(ModelOptions(spec).token_slots, config.hidden_size, teacher.hidden_size,
                                   config.vocab_size, kernels::kDefaultDistillationBytes);
  }
  return needs;
}

absl::Status CheckMemory(const MemoryNeeds& needs, int64_t free_bytes, const v1::JobSpec& spec) {
  if (needs.total() <= free_bytes) return absl::OkStatus();
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : {std::pair("weights", needs.weights),
                                    {"gradients", needs.gradients},
                                    {"optimizer", needs.optimizer},
                                    {"activations", needs.activations},
                                    {"reference model", needs.reference},
                                    {"workspace", needs.workspace}}) {
    if (bytes > 0) parts.push_back(absl::StrCat(name, " ", FormatBytes(bytes)));
  }
  return absl::ResourceExhaustedError(absl::StrCat("the job needs ", FormatBytes(needs.total()), " of GPU memory and ",
                                                   FormatBytes(free_bytes), " are free: ", absl::StrJoin(parts, ", "),
                                                   "; to need less, ", absl::StrJoin(Remedies(spec), ", or ")));
}

absl::Status CheckFreeMemory(const MemoryNeeds& needs, const v1::JobSpec& spec, kernels::Device device) {
  ASSIGN_OR_RETURN(const int64_t free_bytes, FreeDeviceBytes(device));
  return CheckMemory(needs, free_bytes, spec);
}

}  // namespace sluice::engine
