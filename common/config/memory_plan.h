// What one rank of a job allocates, by part: for `sluice plan` and for the engine's check before it starts. Pure.
//
// The engine's own sums (Parameters::bytes, AdamWOptimizer::BytesFor, CausalLm::BytesFor) need its libraries; these are
// the same sums from the sizes alone. tests/parity/memory_plan_test.cc holds one against the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/model_facts.h"
#include "common/config/plan.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

// The device that the numbers are for: engine.device, and for `auto` cuda.
std::string MemoryDevice(const v1::EngineSpec& engine);

// Whether attention on CUDA runs in cuDNN, and the layers can be recorded as CUDA graphs: bf16, heads of at most 128
// elements in eights. What does not goes sequence by sequence through LibTorch.
bool IsRecordable(const v1::EngineSpec& engine, int64_t head_dim);

// Attention of one layer on CUDA with its backward. T = token slots, Hq = query heads, D = head size.
struct AttentionMemory {
  int64_t token_slots = 0, heads = 0, head_dim = 0;
  int64_t longest = 0;    // S: tokens of the longest sequence
  int64_t sequences = 0;  // B: the most in one micro-batch; read where deterministic
  bool recordable = true;
  bool deterministic = false;
};

// About, in bytes. In cuDNN: 12 T Hq D (dq, dk and dv by query head in fp32); deterministic, at least 2 B Hq S^2, with
// B and S rounded up to powers of two as the engine does. In LibTorch: 16 Hq S^2 + 20 Hq S D (four score matrices and
// five arrays of heads, in fp32).
int64_t BytesOf(const AttentionMemory& attention);

// `plan` has its batches. Parts: weights, master weights (bf16 with optim.master_weights), gradients, moments,
// activations, workspace; those of the critic, but for the workspace, which all share; weights and activations of the
// models that only compute: the reference, and rewards of kind `model`.
std::vector<Plan::Memory> MemoryOf(const v1::JobSpec& spec, const JobModels& models, const Plan& plan);

}  // namespace sluice
