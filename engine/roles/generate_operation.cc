#include "engine/roles/generate_operation.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/device/device_memory.h"
#include "engine/rollout/cache_size.h"
#include "engine/rollout/rollout_engine.h"

namespace sluice::engine {
namespace {

// Answers at once, the rest follows as they end; tokens computed at once, of prompts and answers.
struct AtOnce {
  int64_t answers, tokens;
};
constexpr AtOnce kOnCpu = {32, 512}, kOnGpu = {256, 8192};
constexpr double kPartOfFreeMemory = 0.8;  // on a GPU, as rollout.gpu_memory_utilization

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const std::string& prompt, bool apply_chat_template,
                                                  const ChatRowEncoder& encoder) {
  // A template writes the special tokens itself; plain text gets what the tokenizer puts before a text.
  if (!apply_chat_template) return encoder.tokenizer().Encode(prompt, {.add_special_tokens = true});
  const jinja::Value messages = jinja::Value::List(
      {jinja::Value::DictOf({{"role", jinja::Value::String("user")}, {"content", jinja::Value::String(prompt)}})});
  RenderOptions render;
  render.add_generation_prompt = true;
  render.special_tokens = encoder.special_tokens();
  ASSIGN_OR_RETURN(const RenderedChat chat, encoder.chat_template()->Render(messages, render));
  return encoder.tokenizer().Encode(chat.text, {.add_special_tokens = false});
}

SamplingParams ParamsOf(const v1::GenerateOp& op) {
  const v1::SamplingOptions& from = op.sampling();  // unset: temperature 0, greedy
  SamplingParams params;
  params.temperature = from.temperature();
  params.top_k = from.top_k();
  params.top_p = from.top_p() == 0.0 ? 1.0 : from.top_p();
  params.min_p = from.min_p();
  params.repetition_penalty = from.repetition_penalty() == 0.0 ? 1.0 : from.repetition_penalty();
  params.seed = static_cast<uint64_t>(from.seed());
  params.max_new_tokens = op.max_new_tokens();
  params.min_new_tokens = from.min_new_tokens();
  params.stop.assign(from.stop().begin(), from.stop().end());
  params.ignore_eos = from.ignore_eos();
  return params;
}

void Fill(const RolloutSample& sample, v1::Completion* completion) {
  size_t tokens = sample.token_ids.size();
  // The end token is no part of the text; one that completed a stop string is.
  if (sample.finish_reason == FinishReason::kStop && sample.matched_stop.empty()) --tokens;
  completion->mutable_token_ids()->Add(sample.token_ids.begin(),
                                       sample.token_ids.begin() + static_cast<int64_t>(tokens));
  completion->mutable_log_probs()->Add(sample.log_probs.begin(),
                                       sample.log_probs.begin() + static_cast<int64_t>(tokens));
  completion->set_text(sample.text);
  completion->set_finish_reason(sample.finish_reason == FinishReason::kStop ? "stop" : "length");
}

}  // namespace

absl::StatusOr<v1::GenerateResult> RunGenerate(const v1::GenerateOp& op, const ChatRowEncoder& encoder,
                                               const Parameters& parameters) {
  const SamplingParams params = ParamsOf(op);
  RETURN_IF_ERROR(Validate(params));
  if (op.n() < 0) return absl::InvalidArgumentError(absl::StrCat("n is ", op.n(), "; it must be at least 1"));
  if (op.apply_chat_template() && encoder.chat_template() == nullptr) {
    return absl::InvalidArgumentError("the model folder has no chat template; give the prompt as plain text (--raw)");
  }
  const int64_t samples = std::max(op.n(), 1);
  std::vector<RolloutRequest> requests;
  int64_t longest = 0;
  for (int i = 0; i < op.prompts_size(); ++i) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, EncodePrompt(op.prompts(i), op.apply_chat_template(), encoder));
    if (ids.empty()) return absl::InvalidArgumentError(absl::StrCat("prompt ", i, " is empty"));
    longest = std::max(longest, static_cast<int64_t>(ids.size()));
    for (int64_t sample = 0; sample < samples; ++sample) {
      requests.push_back({.id = i * samples + sample, .prompt_ids = ids, .sampling = params});
    }
  }
  v1::GenerateResult result;
  if (requests.empty()) return result;

  const kernels::Device device = parameters.device();
  const AtOnce at_once = device.is_cuda() ? kOnGpu : kOnCpu;
  int64_t room = std::numeric_limits<int64_t>::max();
  if (device.is_cuda()) {
    ASSIGN_OR_RETURN(const int64_t free_bytes, FreeDeviceBytes(device));
    room = static_cast<int64_t>(kPartOfFreeMemory * static_cast<double>(free_bytes));
  }
  RolloutOptions options;
  options.max_model_len = longest + op.max_new_tokens();
  options.max_num_seqs = std::min(static_cast<int64_t>(requests.size()), at_once.answers);
  options.max_num_batched_tokens = at_once.tokens;
  options.cache_tokens = CacheTokensWithin(room, options, parameters);
  ASSIGN_OR_RETURN(const auto rollout, RolloutEngine::Create(&parameters, &encoder.tokenizer(), options));
  RETURN_IF_ERROR(rollout->AllocateCache());
  ASSIGN_OR_RETURN(const std::vector<RolloutSample> answers, rollout->Generate(std::move(requests)));
  for (const RolloutSample& answer : answers) Fill(answer, result.add_completions());
  return result;
}

}  // namespace sluice::engine
