// What a row's columns mean for reinforcement learning: a prompt, and what its reward needs to know.
//
//   prompt   a list of {role, content} or a text in `prompt_key`; where they are there: the data source in
//            `reward_fn_key`, the truth in reward_model.ground_truth (or in `ground_truth_key`), `extra_info`,
//            `ability`
//   gsm8k    question, answer: the prompt is the question with `gsm8k_suffix`, the truth what follows "####" in the
//            answer, without commas; the data source is "openai/gsm8k" where the row has none
//   auto     `prompt` where the row has a column `prompt_key`, else gsm8k
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/formats.h"
#include "engine/data/row_file.h"

namespace sluice::engine {

struct PromptFormatOptions {
  std::string format = "auto";
  std::string prompt_key = "prompt";
  std::string reward_fn_key = "data_source";
  std::string ground_truth_key = "ground_truth";  // used where a row has no reward_model
  std::string tools_key = "tools";
  std::string enable_thinking_key = "enable_thinking";
  std::string system_prompt;  // a system turn put before each conversation that has none; empty: none
  std::string gsm8k_suffix = " Let's think step by step and output the final answer after \"####\".";
};

// One row, understood.
struct PromptSample {
  Sample conversation;  // kConversation, or kText where the prompt is a text and the encoder has no chat template
  std::string data_source;
  std::string ground_truth;     // text as it is, anything else as JSON; empty where the row has none
  std::string extra_info_json;  // a JSON object; empty where the row has none
  std::string ability;
};

// Immutable; threads may share it.
class PromptFormat {
 public:
  // kInvalidArgument: an unknown format, or columns that it needs are missing (the message names those that are there).
  static absl::StatusOr<PromptFormat> Resolve(const PromptFormatOptions& options,
                                              const std::vector<std::string>& columns);

  const std::string& name() const { return name_; }  // never "auto"
  // The columns that Convert looks at.
  std::vector<std::string> columns() const;

  // `has_chat_template`: whether a prompt that is a text becomes a user turn. kInvalidArgument says which column is not
  // as it must be: a prompt that is missing, null, an empty list, or without any text; an answer without "####"; an
  // extra_info that is no object. Errors do not name the row: the caller knows its place.
  absl::StatusOr<PromptSample> Convert(const Row& row, bool has_chat_template) const;

 private:
  PromptFormat(std::string name, PromptFormatOptions options);

  std::string name_;
  PromptFormatOptions options_;
};

// "auto" and the formats' names.
std::vector<std::string> PromptFormatNames();

}  // namespace sluice::engine
