#include "engine/reward/source_reward.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/reward/answer_text.h"
#include "engine/reward/rule_reward.h"

namespace sluice::engine {
namespace {

struct SourceRule {
  std::string_view source;
  bool is_prefix;
  const char* kind;
  std::map<std::string, std::string> options;
};

const std::vector<SourceRule>& Table() {
  static const auto* table = new std::vector<SourceRule>{
      {"openai/gsm8k", false, "gsm8k", {{"method", "strict"}}},
      {"arithmetic", false, "gsm8k", {{"method", "numeric"}}},
      {"lighteval/MATH", false, "math", {}},
      {"DigitalLearningGmbH/MATH-lighteval", false, "math", {}},
      {"HuggingFaceH4/MATH-500", false, "math", {}},
      {"math_dapo", false, "math_dapo", {}},
      {"math", false, "math_dapo", {}},
      {"math_dapo_reasoning", false, "math_dapo", {}},
      {"aime", true, "math_dapo", {}},
  };
  return *table;
}

class SourceReward : public Reward {
 public:
  struct Entry {
    std::string source;
    bool is_prefix;
    RewardRule rule;
  };
  explicit SourceReward(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  absl::StatusOr<std::vector<RewardResult>> Score(absl::Span<const RewardRequest> requests) override {
    std::vector<RewardResult> results;
    results.reserve(requests.size());
    for (const RewardRequest& request : requests) {
      ASSIGN_OR_RETURN(const RewardRule* rule, Find(request.data_source));
      results.push_back((*rule)(request));
    }
    return results;
  }

  absl::Status CheckDataSource(std::string_view data_source) const override { return Find(data_source).status(); }

 private:
  absl::StatusOr<const RewardRule*> Find(std::string_view data_source) const {
    for (const Entry& entry : entries_) {
      if (data_source == entry.source || (entry.is_prefix && data_source.starts_with(entry.source))) {
        return &entry.rule;
      }
    }
    const std::string known = absl::StrJoin(entries_, ", ", [](std::string* out, const Entry& entry) {
      absl::StrAppend(out, entry.source, entry.is_prefix ? "..." : "");
    });
    return absl::InvalidArgumentError(
        absl::StrCat("no rule belongs to data source \"", std::string(data_source), "\" (known: ", known,
                     "); name the kind of reward, or give the source a rule with the option `sources`"));
  }

  const std::vector<Entry> entries_;
};

absl::StatusOr<RewardRule> RuleOf(const std::string& kind, const std::map<std::string, std::string>& options) {
  ASSIGN_OR_RETURN(const RewardOptionValues values, RewardOptionValues::Parse({.kind = kind, .options = options}));
  return MakeRule(kind, values);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reward>> MakeSourceReward(const std::string& further_sources) {
  std::vector<SourceReward::Entry> entries;
  for (const absl::string_view part_text : absl::StrSplit(further_sources, ',')) {
    const std::string_view part = StripSpace({part_text.data(), part_text.size()});
    if (part.empty()) continue;
    const size_t equals = part.rfind('=');
    if (equals == 0 || equals == std::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("sources: \"", std::string(part), "\" is not of the form `data_source=kind`"));
    }
    const std::string source(StripSpace(part.substr(0, equals)));
    absl::StatusOr<RewardRule> rule = RuleOf(std::string(StripSpace(part.substr(equals + 1))), {});
    if (!rule.ok()) return Annotate(rule.status(), absl::StrCat("sources: ", source));
    entries.push_back({source, false, *std::move(rule)});
  }
  for (const SourceRule& row : Table()) {
    ASSIGN_OR_RETURN(RewardRule rule, RuleOf(row.kind, row.options));
    entries.push_back({std::string(row.source), row.is_prefix, std::move(rule)});
  }
  return std::make_unique<SourceReward>(std::move(entries));
}

}  // namespace sluice::engine
