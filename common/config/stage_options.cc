#include "common/config/stage_options.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Sets the field of `to` that has the name of `field` of `from`. REQUIRES: both are of one type, a number.
void CopyNumber(const Message& from, const FieldDescriptor* field, Message* to) {
  const FieldDescriptor* target = to->GetDescriptor()->FindFieldByName(field->name());
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    to->GetReflection()->SetInt64(to, target, from.GetReflection()->GetInt64(from, field));
  } else {
    to->GetReflection()->SetDouble(to, target, from.GetReflection()->GetDouble(from, field));
  }
}

void AddSampling(const v1::StageSamplingSpec& sampling, const std::string& path, std::vector<StageOption>* options) {
  std::vector<const FieldDescriptor*> given;
  sampling.GetReflection()->ListFields(sampling, &given);
  for (const FieldDescriptor* field : given) {
    options->push_back(
        {absl::StrCat(path, ".", field->name()), absl::StrCat("rollout.", field->name()),
         [sampling, field](v1::JobSpec* spec) { CopyNumber(sampling, field, spec->mutable_rollout()); }});
  }
}

// A filter's being there says that groups are left out.
void AddFilter(const v1::StageSpec& stage, const std::string& path, std::vector<StageOption>* options) {
  options->push_back({path + ".op", "algorithm.filter_groups.enable",
                      [](v1::JobSpec* spec) { spec->mutable_algorithm()->mutable_filter_groups()->set_enable(true); }});
  if (stage.has_metric()) {
    options->push_back(
        {path + ".metric", "algorithm.filter_groups.metric", [metric = stage.metric()](v1::JobSpec* spec) {
           spec->mutable_algorithm()->mutable_filter_groups()->set_metric(metric);
         }});
  }
  if (stage.has_max_num_gen_batches()) {
    options->push_back({path + ".max_num_gen_batches", "algorithm.filter_groups.max_num_gen_batches",
                        [most = stage.max_num_gen_batches()](v1::JobSpec* spec) {
                          spec->mutable_algorithm()->mutable_filter_groups()->set_max_num_gen_batches(most);
                        }});
  }
}

// Of what follows steps: after each of them, or after every so many.
void AddFrequency(const v1::StageSpec& stage, const std::string& path, std::vector<StageOption>* options) {
  const bool evaluates = stage.op() == "evaluate";
  const std::string every = absl::StrCat(stage.has_every() ? stage.every() : 1);
  options->push_back({path + (stage.has_every() ? ".every" : ".op"),
                      evaluates ? "trainer.test_freq" : "trainer.save_freq", [evaluates, every](v1::JobSpec* spec) {
                        (evaluates ? spec->mutable_trainer()->mutable_test_freq()
                                   : spec->mutable_trainer()->mutable_save_freq())
                            ->assign(every);
                      }});
}

}  // namespace

std::vector<StageOption> StageOptionsOf(const v1::JobSpec& spec) {
  std::vector<StageOption> options;
  const auto scoring = std::count_if(spec.dataflow().begin(), spec.dataflow().end(),
                                     [](const v1::StageSpec& stage) { return stage.op() == "reward"; });
  for (int i = 0; i < spec.dataflow_size(); ++i) {
    const v1::StageSpec& stage = spec.dataflow(i);
    const std::string path = absl::StrCat("dataflow[", i, "]");
    if (stage.op() == "generate") AddSampling(stage.sampling(), path + ".sampling", &options);
    if (stage.op() == "reward" && scoring > 1) continue;  // each keeps its own (rewards_from_spec.h)
    if (stage.op() == "reward" && stage.has_reward()) {
      v1::RewardSpec reward = stage.reward();
      if (stage.has_num_workers()) reward.mutable_custom_reward_function()->set_num_workers(stage.num_workers());
      options.push_back({path + ".reward", "reward", [reward](v1::JobSpec* job) { *job->mutable_reward() = reward; }});
    } else if (stage.op() == "reward" && stage.has_num_workers()) {
      options.push_back({path + ".num_workers", "reward.custom_reward_function.num_workers",
                         [workers = stage.num_workers()](v1::JobSpec* job) {
                           job->mutable_reward()->mutable_custom_reward_function()->set_num_workers(workers);
                         }});
    }
    if (stage.op() == "advantage" && stage.has_estimator()) {
      options.push_back({path + ".estimator", "algorithm.adv_estimator", [name = stage.estimator()](v1::JobSpec* job) {
                           job->mutable_algorithm()->set_adv_estimator(name);
                         }});
    }
    if (stage.op() == "filter") AddFilter(stage, path, &options);
    if (stage.op() == "evaluate" || stage.op() == "checkpoint") AddFrequency(stage, path, &options);
    if ((stage.op() == "update" || stage.op() == "update_critic") && stage.has_batch_size()) {
      const int64_t prompts = stage.batch_size() * (stage.has_grad_accum_steps() ? stage.grad_accum_steps() : 1);
      const bool critic = stage.op() == "update_critic";
      options.push_back({path + ".batch_size", critic ? "critic.ppo_mini_batch_size" : "actor.ppo_mini_batch_size",
                         [prompts, critic](v1::JobSpec* job) {
                           if (critic) return job->mutable_critic()->set_ppo_mini_batch_size(prompts);
                           job->mutable_actor()->set_ppo_mini_batch_size(prompts);
                         }});
    }
  }
  return options;
}

void ApplyStageOptions(const std::function<bool(const std::string& key)>& given, v1::JobSpec* spec) {
  for (const StageOption& option : StageOptionsOf(*spec)) {
    if (!given(option.key)) option.apply(spec);
  }
}

bool Agrees(const StageOption& option, const v1::JobSpec& spec) {
  v1::JobSpec applied = spec;
  option.apply(&applied);
  return google::protobuf::util::MessageDifferencer::Equals(applied, spec);
}

}  // namespace sluice
