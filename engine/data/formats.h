// What a row's columns mean: a conversation, a prompt with its response, or plain text.
//
// One table row per format in formats.cc; adding a preset is one such row and its convert function.
//
//   messages         a list of {role, content, ...} in `columns.messages`
//   sharegpt         a list of {from, value} in `conversations`; from: human/user, gpt/assistant/chatgpt, system,
//   tool/observation alpaca           instruction, input, output: the prompt wording published with the data, no system
//   turn gsm8k            question, answer hellaswag        ctx, endings, label: the context continued by the right
//   ending; plain text, never a chat prompt_response  two texts, in `columns.prompt` and `columns.response` text a text
//   in `columns.text`, scored from its first token on auto             the first of the above whose columns the first
//   row has
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/row_file.h"

namespace sluice::engine {

struct ColumnNames {
  std::string messages = "messages";
  std::string tools = "tools";                      // list of tools offered to the model; used where a row has it
  std::string enable_thinking = "enable_thinking";  // flag given to the chat template; used where a row has it
  std::string prompt = "prompt";
  std::string response = "response";
  std::string text = "text";
};

struct FormatOptions {
  std::string format = "auto";
  ColumnNames columns;
  std::string system_prompt;  // a system turn put before each conversation that has none; empty: none
};

// One row, understood. Columns of JSON text (lists that were written as a string) are parsed already.
struct Sample {
  enum class Kind {
    kConversation,    // `messages`
    kPromptResponse,  // `prompt`, `response`: one user and one assistant turn where the model has a chat template, else
                      // the two texts joined; `messages` holds those turns
    kContinuation,    // `prompt`, `response`: always the two texts joined
    kText,            // `text`
  };
  Kind kind = Kind::kText;
  jinja::Value messages;              // list of dicts with text `role`
  std::optional<jinja::Value> tools;  // a list that is not empty; absent otherwise
  std::optional<bool> enable_thinking;
  std::string prompt;
  std::string response;
  std::string text;
};

// A format with its columns bound to names. Immutable; threads may share it.
class RowFormat {
 public:
  // Chooses the format for rows that have `columns`. kInvalidArgument where a column is missing, or `auto` finds
  // nothing it knows (the message names the columns that are there), or a system prompt is given for a format without
  // turns.
  static absl::StatusOr<RowFormat> Resolve(const FormatOptions& options, const std::vector<std::string>& columns);

  // The format's name; never "auto".
  std::string_view name() const;
  Sample::Kind kind() const;
  // The columns that Convert looks at: those that must be there, then the optional ones.
  std::vector<std::string> columns() const;
  // Everything that Convert's answer depends on beside the row, for cache keys.
  std::string Fingerprint() const;

  // kInvalidArgument says which column or message is not as the format wants it: missing, null, of another type. An
  // empty list of messages is an error like a null one. Errors do not name the row: the caller knows its place.
  absl::StatusOr<Sample> Convert(const Row& row) const;

  struct Entry;  // a row of the table

 private:
  static absl::StatusOr<RowFormat> Choose(const FormatOptions& options, const std::vector<std::string>& columns);
  RowFormat(const Entry* entry, std::vector<std::string> required, FormatOptions options);

  const Entry* entry_;
  std::vector<std::string> required_;  // one column per place in the format
  FormatOptions options_;
};

// "auto" and the names of the table, for messages and configuration checks.
std::vector<std::string> FormatNames();

}  // namespace sluice::engine
