// The rewards that a job can name: one table for validation, documentation and the makers in engine/reward.
//
// Adding a reward is one row in reward_kinds.cc and one maker in engine/reward/reward_factory.cc. All functions are
// pure; the table is immutable and may be read from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace sluice {

enum class RewardOptionType {
  kText,
  kBool,      // true, false
  kInt,       // decimal
  kFloat,     // finite
  kDuration,  // a number with ms, s, m or h
  kBytes,     // a number of bytes, also with KiB, MiB or GiB
  kJson,      // a JSON object
};

struct RewardOption {
  std::string_view name;
  RewardOptionType type;
  std::string_view default_value;  // as a user would write it; ignored where `required`
  bool required;
  double minimum;                         // of kInt and kFloat, of kDuration in seconds, of kBytes in bytes
  std::vector<std::string_view> choices;  // of kText; empty: any
  std::string_view doc;                   // one sentence
};

struct RewardKind {
  std::string_view name;
  std::string_view doc;  // what it scores and with which numbers
  std::vector<RewardOption> options;
};

absl::Span<const RewardKind> RewardKinds();

// Null where there is no such kind.
const RewardKind* FindRewardKind(std::string_view name);

// One reward of a job.
struct RewardSpec {
  std::string kind;                            // a name of the table
  std::string name;                            // what its metrics begin with; empty: `kind`
  double weight = 1.0;                         // in the weighted sum
  std::map<std::string, std::string> options;  // as written by the user; absent ones have their default

  const std::string& label() const { return name.empty() ? kind : name; }
};

// An option's values, all of them, read by its type. REQUIRES for the getters: the option is in the kind's row with
// that type.
class RewardOptionValues {
 public:
  // kInvalidArgument: an unknown kind or option (names the known ones), a required option that is missing, a value that
  // is not of the option's type or range. The message begins with the option's name.
  static absl::StatusOr<RewardOptionValues> Parse(const RewardSpec& spec);

  const std::string& Text(std::string_view name) const;  // also kJson
  bool Bool(std::string_view name) const;
  int64_t Int(std::string_view name) const;  // also kBytes
  double Float(std::string_view name) const;
  absl::Duration Duration(std::string_view name) const;

 private:
  std::map<std::string, std::string, std::less<>> texts_;
  std::map<std::string, double, std::less<>> numbers_;
};

// Whether all of a job's rewards can be made, as far as their text tells: each spec is in the table's terms, no two
// have one label, and every weight is finite. kInvalidArgument begins with "rewards[i] (label): ".
absl::Status CheckRewardSpecs(absl::Span<const RewardSpec> specs);

// The table as Markdown, for the documentation.
std::string RewardKindsMarkdown();

}  // namespace sluice
