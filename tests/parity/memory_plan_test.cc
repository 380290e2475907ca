// The memory that `sluice plan` shows against the sums of the engine's own buffers, for published models.
#include "common/config/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/config/testing/minimal_job.h"
#include "common/testing/status_matchers.h"
#include "engine/bench/model_shapes.h"
#include "engine/model/causal_lm.h"
#include "engine/model/parameter_layout.h"
#include "engine/optim/adamw_optimizer.h"
#include "engine/roles/job_options.h"
#include "kernels/attention/attention.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/matmul/matmul.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::MinimalJob;
constexpr double kAllowed = 0.05;

void ExpectClose(int64_t planned, int64_t allocated, const std::string& part) {
  const auto exact = static_cast<double>(allocated);
  EXPECT_NEAR(static_cast<double>(planned), exact, kAllowed * exact) << part;
}

// Every combination of the keys that decide about memory.
std::vector<std::vector<std::string>> Jobs() {
  const std::vector<std::string> kKeys[] = {
      {"engine.device=cpu", "engine.device=cuda"},
      {"engine.model_dtype=fp32", "engine.model_dtype=bf16"},
      {"engine.activation_checkpointing=none", "engine.activation_checkpointing=selective",
       "engine.activation_checkpointing=full"},
      {"data.max_token_len_per_gpu=2048", "data.max_token_len_per_gpu=16384"},
      {"optim.moments_dtype=fp32", "optim.moments_dtype=bf16"},
      {"optim.master_weights=true", "optim.master_weights=false", "engine.forward_only=true"},
  };
  std::vector<std::vector<std::string>> jobs = {{}};
  for (const std::vector<std::string>& values : kKeys) {
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& job : jobs) {
      for (const std::string& value : values) {
        longer.push_back(job);
        longer.back().push_back(value);
      }
    }
    jobs = std::move(longer);
  }
  return jobs;
}

// LibTorch's memory lies beside the workspace, cuDNN's in it.
int64_t CudaWorkspace(const v1::JobSpec& spec, const ModelConfig& config) {
  const kernels::DType storage = DTypeOf(spec.engine());
  const CausalLmOptions options = ModelOptions(spec);
  const bool recordable = kernels::IsCapturableAttention(storage, config.head_dim);
  EXPECT_EQ(IsRecordable(spec.engine(), config.head_dim), recordable);
  const int64_t products = kernels::CrossEntropyWorkspace(options.token_slots, config.hidden_size, config.vocab_size,
                                                          storage, options.logits_bytes) +
                           kernels::kMatMulWorkspace;
  const int64_t attention = BytesOf(AttentionMemory{.token_slots = options.token_slots,
                                                    .heads = config.heads,
                                                    .head_dim = config.head_dim,
                                                    .longest = spec.data().max_length(),
                                                    .recordable = recordable});
  if (!recordable) return products + attention;
  return options.backward ? std::max(products, attention) : products;
}

class MemoryPlanTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MemoryPlanTest, IsWhatTheEngineAllocates) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ModelShape(GetParam()));
  ASSERT_OK_AND_ASSIGN(const ModelFacts facts, ParseModelFacts(config.json));
  const ParameterLayout layout(config);
  EXPECT_EQ(facts.parameters, layout.parameter_count());
  for (const std::vector<std::string>& job : Jobs()) {
    SCOPED_TRACE(absl::StrJoin(job, " "));
    const v1::JobSpec spec = MinimalJob(job);
    ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(spec, facts, {}));
    std::map<std::string, int64_t> bytes;
    for (const Plan::Memory& part : plan.memory) bytes[part.part] = part.bytes;

    const kernels::DType storage = DTypeOf(spec.engine());
    ExpectClose(bytes["weights"], layout.size() * kernels::SizeOf(storage), "weights");
    ExpectClose(bytes["activations"], CausalLm::BytesFor(config, storage, ModelOptions(spec)), "activations");
    if (spec.engine().forward_only()) {
      EXPECT_EQ(bytes["gradients"] + bytes["moments"] + bytes["master weights"], 0);
    } else {
      ExpectClose(bytes["gradients"], layout.size() * kernels::SizeOf(kernels::DType::kFloat32), "gradients");
      ExpectClose(bytes["moments"] + bytes["master weights"],
                  AdamWOptimizer::BytesFor(layout, storage, OptimizerOptions(spec)), "optimizer");
    }
    if (plan.memory_device == "cuda") ExpectClose(bytes["workspace"], CudaWorkspace(spec, config), "workspace");
  }
}

TEST_P(MemoryPlanTest, CountsTheCritic) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig model, ModelShape(GetParam()));
  ASSERT_OK_AND_ASSIGN(const ModelFacts facts, ParseModelFacts(model.json));
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseValueModelConfig(model.json));
  const ParameterLayout layout(config);
  EXPECT_EQ(WithValueHead(facts).parameters, layout.parameter_count());
  const v1::JobSpec spec = MinimalJob({"recipe=ppo", "engine.model_dtype=bf16"});
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(spec, facts, {}));
  std::map<std::string, int64_t> bytes;
  for (const Plan::Memory& part : plan.memory) bytes[part.part] = part.bytes;
  const kernels::DType storage = DTypeOf(spec.engine());
  ExpectClose(bytes["critic weights"], layout.size() * kernels::SizeOf(storage), "critic weights");
  ExpectClose(bytes["critic gradients"], layout.size() * kernels::SizeOf(kernels::DType::kFloat32), "gradients");
  ExpectClose(bytes["critic moments"] + bytes["critic master weights"],
              AdamWOptimizer::BytesFor(layout, storage, OptimizerOptions(spec)), "critic optimizer");
  ExpectClose(bytes["critic activations"], CausalLm::BytesFor(config, storage, ModelOptions(spec)), "activations");
}

TEST_P(MemoryPlanTest, CountsModelsThatOnlyCompute) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ModelShape(GetParam()));
  ASSERT_OK_AND_ASSIGN(const ModelFacts facts, ParseModelFacts(config.json));
  ASSERT_OK_AND_ASSIGN(const ModelConfig value_config, ParseValueModelConfig(config.json));
  const v1::JobSpec spec = MinimalJob({"recipe=grpo", "engine.model_dtype=bf16", "actor.use_kl_loss=true"});
  JobModels models;
  models.trained = facts;
  models.trained.layers = 1;  // the reference is a larger model
  models.reference = facts;
  models.rewards = {{"liked", WithValueHead(facts)}};
  ASSERT_OK_AND_ASSIGN(const Plan plan, MakePlan(spec, models, {}));
  std::map<std::string, int64_t> bytes;
  for (const Plan::Memory& part : plan.memory) bytes[part.part] = part.bytes;
  const kernels::DType storage = DTypeOf(spec.engine());
  CausalLmOptions options = ModelOptions(spec);
  options.backward = false;
  ExpectClose(bytes["reference model"], ParameterLayout(config).size() * kernels::SizeOf(storage), "reference");
  ExpectClose(bytes["reference activations"], CausalLm::BytesFor(config, storage, options), "reference activations");
  ExpectClose(bytes["reward liked model"], ParameterLayout(value_config).size() * kernels::SizeOf(storage), "reward");
  ExpectClose(bytes["reward liked activations"], CausalLm::BytesFor(value_config, storage, options), "activations");
}

INSTANTIATE_TEST_SUITE_P(Models, MemoryPlanTest, ::testing::ValuesIn(ModelShapeNames()), [](const auto& info) {
  std::string name = info.param;
  std::erase_if(name, [](char c) { return c == '.' || c == '-'; });
  return name;
});

}  // namespace
}  // namespace sluice::engine
