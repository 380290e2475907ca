// What a row's columns mean for preference tuning: a prompt with a better and a worse response, or with one response
// and whether it is wanted.
//
//   pairs      prompt, chosen, rejected: each a text or a list of messages. Without a prompt column, or with a null
//              prompt, `chosen` and `rejected` are whole conversations (or texts) and the prompt is what they begin
//              with in common. `margin`, where it is there: by how much the better one is better.
//   labelled   prompt, completion, label (true: wanted)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/row_file.h"

namespace sluice::engine {

struct PreferenceColumns {
  std::string prompt = "prompt";
  std::string chosen = "chosen";
  std::string rejected = "rejected";
  std::string margin = "margin";
  std::string completion = "completion";
  std::string label = "label";
  std::string tools = "tools";
  std::string system_prompt;  // a system turn put before each conversation that has none; empty: none
};

// A prompt with one response.
struct PromptWithResponse {
  enum class Kind {
    kConversation,  // `prompt_messages`, `response_messages`
    kTurns,         // `prompt`, `response`: a user and an assistant turn where the model has a chat template
    kText,          // `prompt`, `response`: always the two texts joined; parts of what was one text
  };
  Kind kind = Kind::kTurns;
  jinja::Value prompt_messages;    // list, at least one
  jinja::Value response_messages;  // list, at least one, the first by the assistant
  std::string prompt;
  std::string response;
  std::optional<jinja::Value> tools;
  std::string system_prompt;  // as in PreferenceColumns; already in `prompt_messages`
};

struct PreferenceSample {
  PromptWithResponse chosen;
  PromptWithResponse rejected;  // the same prompt
  std::optional<double> margin;
};

struct LabelledSample {
  PromptWithResponse completion;
  bool wanted = false;
};

// kInvalidArgument says which column is not as it must be: missing, null, a mixture of text and messages, an empty
// response, chosen and rejected that are the same or begin with nothing in common, a margin that is no finite number.
absl::StatusOr<PreferenceSample> PreferenceFromRow(const Row& row, const PreferenceColumns& columns);
absl::StatusOr<LabelledSample> LabelledFromRow(const Row& row, const PreferenceColumns& columns);

}  // namespace sluice::engine
