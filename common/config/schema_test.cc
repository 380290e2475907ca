#include "common/config/schema.h"

#include <google/protobuf/message.h>

#include <memory>

#include "common/config/field_value.h"
#include "common/testing/status_matchers.h"
#include "sluice/v1/job.pb.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(SchemaTest, EveryKeyIsDocumentedAndHasADefaultOrAReasonForNone) {
  int keys = 0;
  for (const Section& section : Schema::Get().sections()) {
    EXPECT_THAT(section.doc, Not(IsEmpty())) << section.path;
    for (const Key& key : section.keys) {
      ++keys;
      EXPECT_THAT(key.doc, Not(IsEmpty())) << key.path;
      EXPECT_EQ(key.options.has_default_value(),
                !key.options.required() && !key.nullable() && key.type != Key::Type::kMap)
          << key.path;
    }
  }
  EXPECT_GE(keys, 70);
}

TEST(SchemaTest, EveryDefaultIsAValidValue) {
  const ExpandOptions expand{[](const std::string&) { return std::nullopt; }, "/folder"};
  for (const Section& section : Schema::Get().sections()) {
    // Any message of the section's type will do.
    const auto* prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(section.message);
    const std::unique_ptr<google::protobuf::Message> message(prototype->New());
    for (const Key& key : section.keys) {
      if (!key.options.has_default_value() || key.options.default_value().empty()) continue;
      std::vector<ConfigError> errors;
      const auto node = ParseYaml(key.options.default_value(), key.path, &errors);
      ASSERT_TRUE(node.has_value()) << ToStatus(errors);
      for (const ValueError& error : SetField(key, *node, expand, message.get()))
        ADD_FAILURE() << key.path << ": " << error.message;
    }
  }
}

TEST(SchemaTest, FindsKeysByPathAndAlias) {
  const Key* lr = Schema::Get().Find("optim.lr");
  ASSERT_NE(lr, nullptr);
  EXPECT_EQ(lr->type, Key::Type::kNumber);
  EXPECT_THAT(lr->doc, StartsWith("Peak learning rate"));
  EXPECT_EQ(Schema::Get().Find("optim"), nullptr);
  EXPECT_EQ(Schema::Get().Find("optim.learning_rate"), nullptr);
  const auto* field = Schema::Get().FieldNamed(v1::OptimSpec::descriptor(), "grad_clip");
  ASSERT_NE(field, nullptr);
  EXPECT_EQ(field->name(), "clip_grad");
}

TEST(SchemaTest, Suggestions) {
  EXPECT_EQ(Schema::Get().Suggestion("optim", "weigth_decay"), " (did you mean weight_decay?)");
  EXPECT_EQ(Schema::Get().Suggestion("", "trianer"), " (did you mean trainer?)");
  EXPECT_EQ(Schema::Get().Suggestion("trainer", "dp_size"), " (it belongs under engine: as engine.dp_size)");
  EXPECT_EQ(Schema::Get().Suggestion("optim", "recipe"), " (recipe belongs at the top level)");
  EXPECT_EQ(Schema::Get().Suggestion("model", "max_lenght"), " (did you mean data.max_length?)");
  EXPECT_EQ(Schema::Get().Suggestion("", "banana"), "");
}

TEST(SchemaTest, ListsOfMapsHaveKeysToo) {
  const Schema& schema = Schema::Get();
  const Key* op = schema.Find("dataflow[].op");
  ASSERT_NE(op, nullptr);
  EXPECT_THAT(RulesText(*op), StartsWith("one of: generate, "));
  EXPECT_EQ(WithoutNumbers("dataflow[12].sampling.n"), "dataflow[].sampling.n");
  EXPECT_EQ(schema.Find(op->field), op);
  EXPECT_EQ(schema.Find("reward.kind"), schema.Find(schema.Find("dataflow[].reward.kind")->field))
      << "a section that is there twice is known by its first place";
  EXPECT_EQ(schema.Suggestion("dataflow[3]", "inptus"), " (did you mean inputs?)");
  EXPECT_EQ(schema.Suggestion("rollout", "estimator"), " (did you mean algorithm.adv_estimator?)")
      << "what lists alone have is not offered elsewhere";
}

TEST(SchemaTest, KeysAreForKindsOfRecipes) {
  const Schema& schema = Schema::Get();
  EXPECT_TRUE(schema.Find("optim.lr")->IsFor(RecipeKind::kText));
  EXPECT_TRUE(schema.Find("optim.lr")->IsFor(RecipeKind::kPreference));
  // Its own option, and its section's.
  for (const char* key : {"data.max_prompt_length", "algorithm.kl_ctrl.type"}) {
    EXPECT_TRUE(schema.Find(key)->IsFor(RecipeKind::kPolicy)) << key;
    EXPECT_FALSE(schema.Find(key)->IsFor(RecipeKind::kPreference)) << key;
    EXPECT_EQ(OnlyForText(schema.Find(key)->only_for), "reinforcement learning") << key;
  }
  for (const char* key : {"data.chosen_key", "preference.beta"}) {
    EXPECT_TRUE(schema.Find(key)->IsFor(RecipeKind::kPreference)) << key;
    EXPECT_FALSE(schema.Find(key)->IsFor(RecipeKind::kText)) << key;
    EXPECT_EQ(OnlyForText(schema.Find(key)->only_for), "preference tuning") << key;
  }
  EXPECT_EQ(OnlyForText({}), "");
}

TEST(SchemaTest, RulesInWords) {
  EXPECT_EQ(RulesText(*Schema::Get().Find("optim.betas")), "exactly 2 elements, at least 0, below 1");
  EXPECT_THAT(RulesText(*Schema::Get().Find("recipe")), StartsWith("one of: sft, pretrain, dpo, "));
  EXPECT_EQ(RulesText(*Schema::Get().Find("name")), "");
  EXPECT_THAT(RequiredMessage(*Schema::Get().Find("model.path")), HasSubstr("Folder in Hugging Face layout"));
}

}  // namespace
}  // namespace sluice
