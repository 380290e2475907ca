#include "engine/rollout/rollout_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::HasSubstr;

// Random weights with the sizes of a golden model, large enough that its distributions are not flat.
std::unique_ptr<Parameters> RandomParameters(const std::string& name, int64_t vocab_size = 64) {
  auto golden = testing::LoadGoldenModel(name);
  EXPECT_OK(golden);
  ModelConfig config = golden->config;
  config.initializer_range = 0.4;
  config.vocab_size = vocab_size;
  config.eos_token_ids = {2, 7};
  auto parameters = Parameters::CreateRandom(config, {.gradients = true}, /*seed=*/5);
  EXPECT_OK(parameters);
  return *std::move(parameters);
}

RolloutOptions Options() {
  return {
      .block_size = 4, .cache_tokens = 2048, .max_num_batched_tokens = 256, .max_num_seqs = 16, .max_model_len = 60};
}

std::unique_ptr<RolloutEngine> MakeEngine(const Parameters& parameters, const RolloutOptions& options,
                                          const Tokenizer* tokenizer = nullptr) {
  auto engine = RolloutEngine::Create(&parameters, tokenizer, options);
  EXPECT_OK(engine);
  EXPECT_OK((*engine)->AllocateCache());
  return *std::move(engine);
}

std::vector<int32_t> Prompt(int64_t length, int32_t salt) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((i * i * 7 + salt * 13 + i) % 60 + 3);
  return ids;
}

// Three prompts with three samples each, under different parameters.
std::vector<RolloutRequest> Requests() {
  std::vector<RolloutRequest> requests;
  for (int32_t prompt = 0; prompt < 3; ++prompt) {
    for (int64_t sample = 0; sample < 3; ++sample) {
      SamplingParams sampling = {.temperature = 0.8 + 0.2 * prompt, .seed = 9, .max_new_tokens = 20 + 3 * prompt};
      if (sample == 1) sampling.top_k = 5, sampling.repetition_penalty = 1.3, sampling.min_new_tokens = 4;
      if (sample == 2) sampling.top_p = 0.8, sampling.ignore_eos = true;
      requests.push_back(
          {.id = 100 * prompt + sample, .prompt_ids = Prompt(5 + 14 * prompt, prompt), .sampling = sampling});
    }
  }
  return requests;
}

void ExpectSame(const std::vector<RolloutSample>& got, const std::vector<RolloutSample>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].id, want[i].id);
    EXPECT_EQ(got[i].token_ids, want[i].token_ids) << "request " << want[i].id;
    EXPECT_EQ(got[i].log_probs, want[i].log_probs) << "request " << want[i].id;
    EXPECT_EQ(got[i].finish_reason, want[i].finish_reason);
    EXPECT_EQ(got[i].text, want[i].text);
  }
}

std::vector<RolloutSample> GenerateWith(const Parameters& parameters, const RolloutOptions& options,
                                        RolloutCounters* counters = nullptr) {
  const auto engine = MakeEngine(parameters, options);
  auto samples = engine->Generate(Requests());
  EXPECT_OK(samples);
  EXPECT_TRUE(engine->idle());
  if (counters != nullptr) *counters = engine->counters();
  return *std::move(samples);
}

class RolloutEngineTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RolloutEngineTest, SamplesAreTheSameBitsHoweverTheyAreMade) {
  const auto parameters = RandomParameters(GetParam());
  RolloutOptions alone = Options();
  alone.max_num_seqs = 1;
  alone.prefix_sharing = false;
  const std::vector<RolloutSample> want = GenerateWith(*parameters, alone);
  for (const RolloutSample& sample : want) {
    ASSERT_FALSE(sample.token_ids.empty());
    EXPECT_EQ(sample.token_ids.size(), sample.log_probs.size());
  }

  RolloutCounters counters;
  ExpectSame(GenerateWith(*parameters, Options(), &counters), want);
  EXPECT_GT(counters.shared_tokens, 0);
  EXPECT_EQ(counters.preemptions, 0);

  RolloutOptions chunked = Options();
  chunked.max_num_batched_tokens = 9;
  chunked.max_num_seqs = 9;
  ExpectSame(GenerateWith(*parameters, chunked), want);

  RolloutOptions tight = Options();
  tight.cache_tokens = 72;
  tight.block_size = 3;
  ExpectSame(GenerateWith(*parameters, tight, &counters), want);
  EXPECT_GT(counters.preemptions, 0);
  tight.prefix_sharing = false;
  tight.block_size = 1;
  ExpectSame(GenerateWith(*parameters, tight, &counters), want);
  EXPECT_GT(counters.preemptions, 0);
  EXPECT_EQ(counters.shared_tokens, 0);
}

TEST_P(RolloutEngineTest, LogProbsAreTheTrainers) {
  const auto parameters = RandomParameters(GetParam());
  std::vector<RolloutRequest> requests = Requests();
  for (RolloutRequest& request : requests) request.sampling.temperature = 1.0;
  const auto engine = MakeEngine(*parameters, Options());
  ASSERT_OK_AND_ASSIGN(const std::vector<RolloutSample> samples, engine->Generate(requests));
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters.get(), {.token_slots = 64, .backward = false}));
  for (size_t i = 0; i < samples.size(); ++i) {
    std::vector<int32_t> ids = requests[i].prompt_ids;
    ids.insert(ids.end(), samples[i].token_ids.begin(), samples[i].token_ids.end());
    std::vector<int32_t> labels(ids.size(), kIgnoreLabel);
    const size_t prompt = requests[i].prompt_ids.size();
    for (size_t t = prompt; t < ids.size(); ++t) labels[t - 1] = ids[t];
    ASSERT_OK(model->Forward(testing::Pack({ids}, {labels}, static_cast<int64_t>(ids.size()))));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> log_probs, model->TokenLogProbs());
    for (size_t t = prompt; t < ids.size(); ++t) {
      EXPECT_NEAR(samples[i].log_probs[t - prompt], log_probs[t - 1], 1e-4) << "request " << i << " token " << t;
    }
  }
}

TEST_P(RolloutEngineTest, GreedyTakesTheLikeliestAndStops) {
  const auto parameters = RandomParameters(GetParam());
  const int64_t vocabulary = parameters->config().vocab_size;
  ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters.get(), {.token_slots = 64, .backward = false}));
  const std::vector<int32_t> prompt = Prompt(6, 4);
  std::vector<int32_t> sequence = prompt, want;
  for (int i = 0; i < 8; ++i) {
    const auto size = static_cast<int64_t>(sequence.size());
    ASSERT_OK_AND_ASSIGN(
        const std::vector<float> logits,
        model->Logits(testing::Pack({sequence}, {std::vector<int32_t>(sequence.size(), kIgnoreLabel)}, size)));
    const auto last = logits.end() - vocabulary;
    want.push_back(static_cast<int32_t>(std::max_element(last, logits.end()) - last));
    sequence.push_back(want.back());
  }
  const auto engine = MakeEngine(*parameters, Options());
  const auto generate = [&](SamplingParams sampling) {
    sampling.temperature = 0;
    auto samples = engine->Generate({{.id = 1, .prompt_ids = prompt, .sampling = sampling}});
    EXPECT_OK(samples);
    return (*samples)[0];
  };
  const RolloutSample all = generate({.max_new_tokens = 8, .ignore_eos = true});
  EXPECT_EQ(all.token_ids, want);
  EXPECT_EQ(all.finish_reason, FinishReason::kLength);

  // A stop token ends the answer and is its last token.
  const RolloutSample stopped = generate({.max_new_tokens = 8, .stop_token_ids = {want[3]}, .ignore_eos = true});
  const auto first = std::find(want.begin(), want.end(), want[3]);
  EXPECT_EQ(stopped.token_ids, std::vector<int32_t>(want.begin(), first + 1));
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);

  // Until min_new_tokens it cannot come, and the next best comes instead.
  const RolloutSample later =
      generate({.max_new_tokens = 8, .min_new_tokens = 6, .stop_token_ids = {want[3]}, .ignore_eos = true});
  EXPECT_GE(later.token_ids.size(), 6u);
  EXPECT_EQ(std::count(later.token_ids.begin(), later.token_ids.begin() + 6, want[3]), 0);

  // The engine's longest sequence is the other end.
  RolloutOptions small = Options();
  small.max_model_len = 9;
  const auto short_engine = MakeEngine(*parameters, small);
  ASSERT_OK_AND_ASSIGN(
      const auto cut,
      short_engine->Generate(
          {{.prompt_ids = prompt, .sampling = {.temperature = 0, .max_new_tokens = 8, .ignore_eos = true}}}));
  EXPECT_EQ(cut[0].token_ids, std::vector<int32_t>(want.begin(), want.begin() + 3));
  EXPECT_EQ(cut[0].finish_reason, FinishReason::kLength);
}

TEST_P(RolloutEngineTest, AnAbortedAnswerGoesOnWhereItWas) {
  const auto parameters = RandomParameters(GetParam());
  const std::vector<RolloutSample> want = GenerateWith(*parameters, Options());
  for (const bool freed : {false, true}) {
    const auto engine = MakeEngine(*parameters, Options());
    for (const RolloutRequest& request : Requests()) ASSERT_OK(engine->Add(request));
    std::vector<RolloutSample> samples;
    const auto step = [&] {
      ASSERT_OK_AND_ASSIGN(std::vector<RolloutSample> finished, engine->Step());
      for (RolloutSample& sample : finished) samples.push_back(std::move(sample));
    };
    for (int i = 0; i < 7; ++i) step();
    if (freed) {
      // Between phases: requests stay, memory goes.
      EXPECT_GT(engine->bytes(), 0);
      engine->FreeCache();
      EXPECT_EQ(engine->bytes(), 0);
      EXPECT_THAT(engine->Step(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not allocated")));
      ASSERT_OK(engine->AllocateCache());
    } else {
      const std::vector<RolloutSample> partial = engine->AbortAll();
      EXPECT_TRUE(engine->idle());
      EXPECT_EQ(partial.size() + samples.size(), want.size());
      for (const RolloutSample& part : partial) {
        EXPECT_EQ(part.finish_reason, FinishReason::kAbort);
        EXPECT_FALSE(part.token_ids.empty());
        std::vector<RolloutRequest> all = Requests();
        RolloutRequest request =
            *std::find_if(all.begin(), all.end(), [&](const RolloutRequest& r) { return r.id == part.id; });
        request.generated = {part.token_ids, part.log_probs, part.weight_version};
        ASSERT_OK(engine->Add(request));
      }
    }
    while (!engine->idle()) step();
    std::sort(samples.begin(), samples.end(),
              [](const RolloutSample& a, const RolloutSample& b) { return a.id < b.id; });
    ExpectSame(samples, want);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, RolloutEngineTest, ::testing::ValuesIn(testing::GoldenModelNames()),
                         [](const auto& info) { return info.param; });

TEST(RolloutEngineCaseTest, NewWeightsAreUsedAtOnceAndStamped) {
  const auto parameters = RandomParameters("qwen3");
  const auto engine = MakeEngine(*parameters, Options());
  engine->set_weight_version(3);
  ASSERT_OK_AND_ASSIGN(const auto before, engine->Generate(Requests()));
  for (const RolloutSample& sample : before) EXPECT_EQ(sample.weight_version, 3);

  // One is under way while the weights change: its stamp is that of its first token.
  std::vector<RolloutRequest> requests = Requests();
  ASSERT_OK(engine->Add(requests[2]));
  ASSERT_OK(engine->Step());
  float* values = parameters->values().as<float>();
  for (int64_t i = 0; i < parameters->values().elements(); ++i) values[i] *= 1.1f;
  engine->set_weight_version(4);
  std::vector<RolloutSample> done;
  while (!engine->idle()) {
    ASSERT_OK_AND_ASSIGN(const auto finished, engine->Step());
    done.insert(done.end(), finished.begin(), finished.end());
  }
  EXPECT_EQ(done[0].weight_version, 3);
  EXPECT_EQ(done[0].token_ids[0], before[2].token_ids[0]);
  EXPECT_NE(done[0].log_probs, before[2].log_probs);

  // Nothing cached under the old weights is used.
  ASSERT_OK_AND_ASSIGN(const auto after, engine->Generate(Requests()));
  ExpectSame(after, GenerateWith(*parameters, Options()));
  EXPECT_EQ(after[0].weight_version, 4);
}

TEST(RolloutEngineCaseTest, WrongRequestsAreNamed) {
  const auto parameters = RandomParameters("qwen2");
  const auto engine = MakeEngine(*parameters, Options());
  const auto expect = [&](RolloutRequest request, const char* message) {
    request.id = 17;
    EXPECT_THAT(engine->Add(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
    EXPECT_THAT(engine->Add(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("request 17: ")));
    EXPECT_TRUE(engine->idle());
  };
  expect({}, "the prompt is empty");
  expect({.prompt_ids = {3, 64}}, "prompt_ids[1] is 64, outside of the model's vocabulary of 64");
  expect({.prompt_ids = {3, -1}}, "prompt_ids[1] is -1");
  expect({.prompt_ids = Prompt(60, 0)},
         "of 60 tokens leaves no room for an answer: the longest sequence has 60 tokens");
  expect({.prompt_ids = {3}, .sampling = {.top_p = 2}}, "top_p is 2");
  expect({.prompt_ids = {3}, .sampling = {.stop = {"x"}}}, "stop strings need a tokenizer");
  expect({.prompt_ids = {3}, .sampling = {.stop_token_ids = {99}}}, "stop_token_ids[0] is 99");
  expect({.prompt_ids = {3}, .generated = {.token_ids = {3}}}, "has 1 tokens and 0 log-probabilities");
  expect({.prompt_ids = {3}, .sampling = {.max_new_tokens = 1}, .generated = {.token_ids = {3}, .log_probs = {0}}},
         "has all 1 tokens of max_new_tokens");
  ASSERT_OK(engine->Add({.id = 1, .prompt_ids = {3}}));
  EXPECT_THAT(engine->Add({.id = 1, .prompt_ids = {4}}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("request 1 is under way")));
  EXPECT_THAT(engine->Abort(2), StatusIs(absl::StatusCode::kNotFound, HasSubstr("request 2")));
  EXPECT_THAT(engine->Generate({}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("under way")));
  EXPECT_OK(engine->Abort(1));
  EXPECT_TRUE(engine->idle());

  RolloutOptions options = Options();
  options.cache_tokens = 59;
  EXPECT_THAT(RolloutEngine::Create(parameters.get(), nullptr, options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rollout: cache_tokens is 59")));
  options = Options();
  options.max_num_batched_tokens = 15;
  EXPECT_THAT(RolloutEngine::Create(parameters.get(), nullptr, options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_num_batched_tokens is 15")));
}

TEST(RolloutEngineCaseTest, NanIsAnErrorOfItsRequestNotAToken) {
  const auto parameters = RandomParameters("qwen2");
  // The embedding of one token: who reads it gets NaN.
  const kernels::TensorView embedding = parameters->weights().embedding;
  embedding.as<float>()[50 * embedding.row_stride] = std::nanf("");
  const auto engine = MakeEngine(*parameters, Options());
  ASSERT_OK(engine->Add({.id = 5, .prompt_ids = {3, 50, 4}}));
  EXPECT_THAT(engine->Step(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("request 5, token 0: ")));
  EXPECT_THAT(engine->Step(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is nan")));
  ASSERT_OK_AND_ASSIGN(const RolloutSample sample, engine->Abort(5));
  EXPECT_TRUE(sample.token_ids.empty());
  EXPECT_TRUE(engine->idle());
}

TEST(RolloutEngineCaseTest, TextEndsBeforeAStopString) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load("tests/golden/tokenizer/qwen2_style.tokenizer.json"));
  const auto parameters = RandomParameters("qwen2", tokenizer->vocab_size());
  const auto engine = MakeEngine(*parameters, Options(), tokenizer.get());
  const std::vector<int32_t> prompt = tokenizer->Encode("hello world");
  const auto generate = [&](const SamplingParams& sampling) {
    auto samples = engine->Generate({{.id = 3, .prompt_ids = prompt, .sampling = sampling}});
    EXPECT_OK(samples);
    return (*samples)[0];
  };
  const SamplingParams free = {.max_new_tokens = 30, .ignore_eos = true};
  const RolloutSample all = generate(free);
  EXPECT_EQ(all.text, tokenizer->Decode(all.token_ids, {.skip_special_tokens = true}));
  EXPECT_EQ(all.matched_stop, "");
  ASSERT_GT(all.text.size(), 12u);

  SamplingParams stopping = free;
  stopping.stop = {all.text.substr(6, 4)};
  const size_t at = all.text.find(stopping.stop[0]);
  const RolloutSample stopped = generate(stopping);
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.text, all.text.substr(0, at));
  EXPECT_EQ(stopped.matched_stop, stopping.stop[0]);
  ASSERT_LT(stopped.token_ids.size(), all.token_ids.size());
  EXPECT_TRUE(std::equal(stopped.token_ids.begin(), stopped.token_ids.end(), all.token_ids.begin()));
  EXPECT_EQ(stopped.token_ids.size(), stopped.log_probs.size());

  // An end token is the last id and no text.
  SamplingParams ending = free;
  ending.stop_token_ids = {all.token_ids[5]};
  const RolloutSample ended = generate(ending);
  EXPECT_EQ(ended.token_ids.back(), all.token_ids[5]);
  EXPECT_EQ(ended.text,
            tokenizer->Decode({ended.token_ids.data(), ended.token_ids.size() - 1}, {.skip_special_tokens = true}));
}

}  // namespace
}  // namespace sluice::engine
