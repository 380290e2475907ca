// A reward model against trl and transformers on the same pairs (tests/golden/preference/reward_model.safetensors, made
// by tools/oracle/preference_model.py): one step's loss and gradients, and its numbers as a reward.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "common/file_system.h"
#include "common/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/checkpoint/model_folder_writer.h"
#include "engine/model/causal_lm.h"
#include "engine/model/testing/golden_model.h"
#include "engine/roles/pair_rewards.h"
#include "engine/roles/reward_model.h"

namespace sluice::engine {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kModel[] = "llama_linear_rope_tied";
// As small as the model: three letters.
constexpr char kTokenizer[] = R"({"added_tokens": [], "normalizer": null, "post_processor": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}})";
constexpr int64_t kPairs = 4;

class RewardModelParityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(testing::GoldenModel language, testing::LoadGoldenModel(kModel));
    ASSERT_OK_AND_ASSIGN(const auto body, testing::LoadGoldenParameters(language, kModel, {}));
    ASSERT_OK_AND_ASSIGN(SafetensorsFile expected,
                         SafetensorsFile::Open(PosixFileSystem(), "tests/golden/preference/reward_model.safetensors"));
    ASSERT_OK_AND_ASSIGN(const HostTensors weights, body->ExportValues(kernels::DType::kFloat32));
    std::vector<TensorData> tensors = weights.tensors;
    ASSERT_OK_AND_ASSIGN(tensors.emplace_back(), expected.Tensor("score.weight"));
    ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseValueModelConfig(language.config.json));
    std::vector<std::string> warnings;
    ASSERT_OK_AND_ASSIGN(parameters_, Parameters::CreateFromTensors(config, {}, tensors, warnings));
    EXPECT_THAT(warnings, ::testing::IsEmpty());
    golden_ = std::make_unique<testing::GoldenModel>(testing::GoldenModel{config, std::move(expected), {}});
    ReadRows("chosen", &chosen_);
    ReadRows("rejected", &rejected_);
    for (size_t i = 0; i < chosen_.size(); ++i) {
      groups_.push_back({{&chosen_[i], &rejected_[i]}, static_cast<int64_t>(i)});
    }
  }

  void ReadRows(const std::string& side, std::vector<EncodedRow>* rows) {
    const std::vector<int32_t> ids = golden_->ExpectedInts(side + "_ids");
    auto begin = ids.begin();
    for (const int32_t length : golden_->ExpectedInts(side + "_lengths")) {
      EncodedRow& row = rows->emplace_back();
      row.ids.assign(begin, begin + length);
      row.mask.assign(row.ids.size(), 0);
      row.mask.back() = 1;
      begin += length;
    }
  }

  // As recipe reward_model exports it, without a tokenizer.
  std::string WriteFolder() const {
    const std::string path = folder_.Join("reward");
    const auto exported = parameters_->ExportValues(kernels::DType::kFloat32);
    std::vector<TensorSpec> specs;
    std::map<std::string, std::span<const std::byte>> bytes;
    for (const TensorData& tensor : exported->tensors) {
      specs.push_back(tensor.spec);
      bytes[tensor.spec.name] = tensor.bytes;
    }
    const TensorSource source = [&](const TensorSpec& spec) -> absl::StatusOr<std::span<const std::byte>> {
      return bytes[spec.name];
    };
    EXPECT_OK(WriteModelFolder(PosixFileSystem(), path,
                               ExportConfigJson(parameters_->config(), kernels::DType::kFloat32), specs, source,
                               ModelFolderOptions()));
    return path;
  }

  sluice::testing::TempDir folder_;
  std::unique_ptr<testing::GoldenModel> golden_;
  std::unique_ptr<Parameters> parameters_;
  std::vector<EncodedRow> chosen_, rejected_;
  std::vector<SequenceGroup> groups_;
};

TEST_F(RewardModelParityTest, LossAndEveryGradientAreTrls) {
  ASSERT_EQ(groups_.size(), static_cast<size_t>(kPairs));
  const RewardModelOptions options = {.center_rewards_coefficient = golden_->Expected("center_rewards_coefficient")[0]};
  const std::vector<float> margins = golden_->Expected("margin"), rewards = golden_->Expected("rewards");
  for (const int64_t token_slots : {24, 40, 100}) {
    ASSERT_OK_AND_ASSIGN(const auto model, CausalLm::Create(parameters_.get(), {.token_slots = token_slots}));
    ASSERT_OK_AND_ASSIGN(const BatchPlan plan, PlanGroups(groups_, 1, token_slots));
    RewardModelMetrics sum;
    GradientMode mode = GradientMode::kOverwrite;
    for (const std::vector<int32_t>& micro_batch : plan.ranks[0]) {
      const PackedGroups packed = PackGroups(groups_, micro_batch, token_slots);
      std::vector<float> margin;
      for (const int32_t place : micro_batch) margin.push_back(margins[static_cast<size_t>(place)]);
      const auto loss = [&](const std::vector<float>& values) -> absl::StatusOr<std::vector<float>> {
        std::vector<float> d_values(values.size(), 7.0f);
        ASSIGN_OR_RETURN(const auto metrics, PairRewardLoss(options, packed, values, margin, kPairs, d_values));
        sum += metrics;
        const std::vector<int64_t> slots = LastMarkedSlots(packed);
        for (size_t i = 0; i < micro_batch.size(); ++i) {
          const auto place = static_cast<size_t>(micro_batch[i]);
          EXPECT_NEAR(values[static_cast<size_t>(slots[2 * i])], rewards[place], 1e-5);
          EXPECT_NEAR(values[static_cast<size_t>(slots[2 * i + 1])], rewards[kPairs + place], 1e-5);
        }
        return d_values;
      };
      ASSERT_OK(model->ForwardBackward(packed.batch, loss, mode));
      mode = GradientMode::kAccumulate;
    }
    const double expected = golden_->Expected("loss")[0];
    EXPECT_NEAR(sum.loss, expected, 1e-5 * expected) << token_slots;
    EXPECT_EQ(sum.accuracy.Mean(), 0.75);  // the third pair is the wrong way round
    ASSERT_OK_AND_ASSIGN(const std::string differences,
                         testing::GradientDifferences(*golden_, *parameters_, {.relative = 1e-5, .of_largest = 1e-5}));
    EXPECT_EQ(differences, "") << token_slots << " slots";
  }
}

TEST_F(RewardModelParityTest, WhatATemplateWritesBehindAnAnswerChangesNothing) {
  std::vector<EncodedRow> longer = chosen_;
  for (EncodedRow& row : longer) {
    row.ids.insert(row.ids.end(), {1, 2});
    row.mask.insert(row.mask.end(), {0, 0});
  }
  std::vector<SequenceGroup> groups;
  for (size_t i = 0; i < longer.size(); ++i) groups.push_back({{&longer[i], &rejected_[i]}, 0});
  const PackedGroups packed = PackGroups(groups, {0, 1}, 64);
  const std::vector<int64_t> slots = LastMarkedSlots(packed);
  ASSERT_EQ(slots.size(), 4u);
  EXPECT_EQ(slots[0], packed.sequences[0].end - 3);
  EXPECT_EQ(slots[1], packed.sequences[1].end - 1);
  EXPECT_EQ(slots[2], packed.sequences[2].end - 3);
}

TEST_F(RewardModelParityTest, AsARewardItGivesTransformersNumbers) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(folder_.Write("tokenizer.json", kTokenizer)));
  ASSERT_OK_AND_ASSIGN(const auto reward, RewardModel::Open(WriteFolder(), *tokenizer));
  std::vector<RewardRequest> requests;
  for (const auto* rows : {&chosen_, &rejected_}) {
    for (size_t i = 0; i < rows->size(); ++i) {
      const absl::Span<const int32_t> ids = (*rows)[i].ids;
      const auto prompt = static_cast<size_t>(golden_->ExpectedInts("prompt_lengths")[i]);
      RewardRequest& request = requests.emplace_back();
      request.prompt_ids = ids.first(prompt);
      request.response_ids = ids.subspan(prompt);
    }
  }
  EXPECT_THAT(reward->Score(requests), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not loaded")));
  for (const int64_t token_slots : {16, 64}) {
    v1::JobSpec spec;
    spec.mutable_data()->set_max_token_len_per_gpu(token_slots);
    ASSERT_OK(reward->Load(spec, kernels::Device::Cpu()));
    ASSERT_OK_AND_ASSIGN(const std::vector<RewardResult> results, reward->Score(requests));
    ASSERT_EQ(results.size(), requests.size());
    for (size_t i = 0; i < results.size(); ++i) {
      ASSERT_TRUE(results[i].score.has_value());
      EXPECT_NEAR(*results[i].score, golden_->Expected("rewards")[i], 1e-5) << i;
    }
    EXPECT_GT(reward->TakeFlops(), 0);
    EXPECT_EQ(reward->TakeFlops(), 0);
  }
  requests[1].response_ids = {};
  EXPECT_THAT(reward->Score(requests), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("without its tokens")));
}

TEST_F(RewardModelParityTest, AFolderThatCannotJudgeIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(folder_.Write("tokenizer.json", kTokenizer)));
  EXPECT_THAT(RewardModel::Open(std::string("tests/golden/model/") + kModel, *tokenizer),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no score.weight: it is no reward model")));
  EXPECT_THAT(RewardModel::Open(folder_.Join("absent"), *tokenizer),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  const std::string folder = WriteFolder();
  folder_.Write("reward/tokenizer.json", kTokenizer);
  EXPECT_OK(RewardModel::Open(folder, *tokenizer));
  std::string other = kTokenizer;
  other.replace(other.find("\"b\": 1"), 6, "\"x\": 1");
  folder_.Write("reward/tokenizer.json", other);
  EXPECT_THAT(RewardModel::Open(folder, *tokenizer),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(folder), HasSubstr("id 1 is \"x\" there and \"b\" here"))));
}

TEST_F(RewardModelParityTest, ANumberThatIsNotFiniteIsAnErrorAndNoScore) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(folder_.Write("tokenizer.json", kTokenizer)));
  parameters_->weights().head.as<float>()[0] = std::nanf("");
  ASSERT_OK_AND_ASSIGN(const auto reward, RewardModel::Open(WriteFolder(), *tokenizer));
  v1::JobSpec spec;
  spec.mutable_data()->set_max_token_len_per_gpu(64);
  ASSERT_OK(reward->Load(spec, kernels::Device::Cpu()));
  RewardRequest request;
  request.response_ids = chosen_[0].ids;
  ASSERT_OK_AND_ASSIGN(const std::vector<RewardResult> results, reward->Score({request}));
  EXPECT_FALSE(results[0].score.has_value());
  EXPECT_EQ(results[0].error, RewardError::kBadValue);
}

}  // namespace
}  // namespace sluice::engine
