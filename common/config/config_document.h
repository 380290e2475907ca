// The table of configuration keys as text: what `sluice config --defaults` prints and what docs/config.md holds.
#pragma once

#include <string>

namespace sluice {

// A job file with every key at its default, each under its meaning, type and rules. Required keys are empty there; with
// values for them the text is a valid job.
std::string DefaultsText();

// docs/config.md. A test keeps the file equal to this.
std::string ConfigMarkdown();

// docs/rewards.md: how a job names its rewards, and each of them with its options.
std::string RewardsMarkdown();

}  // namespace sluice
