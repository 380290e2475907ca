#include "controller/job_states.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace sluice::controller {
namespace {

using v1::JobState;

// The same table written the other way round, by hand: what may follow each state.
const std::map<std::string, std::set<std::string>>& Followers() {
  static const auto* const followers = new std::map<std::string, std::set<std::string>>{
      {"UNSPECIFIED", {}},
      {"QUEUED", {"ADMITTED", "CANCELLED"}},
      {"ADMITTED", {"STARTING", "RECOVERING", "CANCELLING"}},
      {"STARTING", {"RUNNING", "RECOVERING", "CANCELLING", "FAILED"}},
      {"RUNNING", {"CHECKPOINTING", "RECOVERING", "CANCELLING", "SUCCEEDED", "FAILED"}},
      {"CHECKPOINTING", {"RUNNING", "RECOVERING", "CANCELLING", "FAILED"}},
      {"RECOVERING", {"QUEUED", "CANCELLING", "FAILED"}},
      {"CANCELLING", {"CANCELLED"}},
      {"SUCCEEDED", {}},
      {"FAILED", {}},
      {"CANCELLED", {}}};
  return *followers;
}

TEST(JobStatesTest, EveryPairIsAsTheTableSays) {
  for (int from = v1::JobState_MIN; from <= v1::JobState_MAX; ++from) {
    for (int to = v1::JobState_MIN; to <= v1::JobState_MAX; ++to) {
      const std::string from_name = StateName(static_cast<JobState>(from)),
                        to_name = StateName(static_cast<JobState>(to));
      EXPECT_EQ(IsAllowedTransition(static_cast<JobState>(from), static_cast<JobState>(to)),
                Followers().at(from_name).count(to_name) == 1)
          << from_name << " to " << to_name;
    }
  }
}

TEST(JobStatesTest, TerminalIsFinalAndNothingElseIs) {
  for (const JobState state : AllJobStates()) EXPECT_EQ(IsTerminal(state), Followers().at(StateName(state)).empty());
}

TEST(JobStatesTest, EveryStateIsReachedFromQueuedAndEveryStateCanEnd) {
  std::set<JobState> reached = {v1::JOB_STATE_QUEUED};
  for (size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const JobState from : std::set<JobState>(reached)) {
      for (const JobState to : AllJobStates()) {
        if (IsAllowedTransition(from, to)) reached.insert(to);
      }
    }
  }
  EXPECT_EQ(reached.size(), AllJobStates().size());
}

// A cancel must have somewhere to go from every state that is not final.
TEST(JobStatesTest, EveryStateCanBeCancelled) {
  for (const JobState state : AllJobStates()) {
    if (IsTerminal(state) || state == v1::JOB_STATE_CANCELLING) continue;
    EXPECT_TRUE(IsAllowedTransition(state, v1::JOB_STATE_CANCELLING) ||
                IsAllowedTransition(state, v1::JOB_STATE_CANCELLED))
        << StateName(state);
  }
}

TEST(JobStatesTest, NamesHaveNoPrefix) {
  EXPECT_EQ(StateName(v1::JOB_STATE_CHECKPOINTING), "CHECKPOINTING");
  EXPECT_EQ(ReasonName(v1::FAILURE_REASON_OUT_OF_MEMORY), "OUT_OF_MEMORY");
}

}  // namespace
}  // namespace sluice::controller
