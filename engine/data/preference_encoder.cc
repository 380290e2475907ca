#include "engine/data/preference_encoder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "engine/data/messages.h"

namespace sluice::engine {
namespace {

using jinja::Value;
using Kind = PromptWithResponse::Kind;

Value Turn(const char* role, const std::string& text) {
  return Value::DictOf({{"role", Value::String(role)}, {"content", Value::String(text)}});
}

int64_t CommonPrefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

int64_t AssistantTurns(const Value& messages) {
  return std::count_if(messages.items().begin(), messages.items().end(),
                       [](const Value& message) { return message.Field("role").string() == "assistant"; });
}

// Nothing before `begin` is marked, and of the marked runs behind it only the last `runs`. The second matters where the
// template writes the prompt differently once a response follows, so that the two renderings part early.
void KeepResponse(int64_t begin, int64_t runs, std::vector<uint8_t>* mask) {
  std::fill(mask->begin(), mask->begin() + begin, 0);
  int64_t seen = 0;
  for (int64_t t = static_cast<int64_t>(mask->size()) - 1; t >= begin; --t) {
    const bool ends_run = (*mask)[t] != 0 && (t + 1 == static_cast<int64_t>(mask->size()) || (*mask)[t + 1] == 0);
    if (ends_run && seen++ == runs) {
      std::fill(mask->begin(), mask->begin() + t + 1, 0);
      return;
    }
  }
}

absl::StatusOr<EncodedCompletion> EncodeConversation(const ChatRowEncoder& encoder, const Value& prompt,
                                                     const Value& response, const std::optional<Value>& tools) {
  Sample sample;
  sample.kind = Sample::Kind::kConversation;
  sample.messages = prompt;
  sample.tools = tools;
  ASSIGN_OR_RETURN(const EncodedPrompt encoded_prompt, encoder.EncodePrompt(sample));
  std::vector<Value> messages = prompt.items();
  messages.insert(messages.end(), response.items().begin(), response.items().end());
  sample.messages = Value::List(std::move(messages));
  EncodedCompletion result;
  ASSIGN_OR_RETURN(result.row, encoder.Encode(sample));
  result.prompt_tokens = CommonPrefix(encoded_prompt.ids, result.row.ids);
  KeepResponse(result.prompt_tokens, AssistantTurns(response), &result.row.mask);
  return result;
}

absl::StatusOr<EncodedCompletion> EncodeTexts(const ChatRowEncoder& encoder, const PromptWithResponse& texts) {
  Sample sample;
  sample.kind = Sample::Kind::kText;
  sample.text = texts.prompt;
  ASSIGN_OR_RETURN(const EncodedPrompt encoded_prompt, encoder.EncodePrompt(sample));
  sample.kind = Sample::Kind::kContinuation;
  sample.prompt = texts.prompt;
  sample.response = texts.response;
  EncodedCompletion result;
  ASSIGN_OR_RETURN(result.row, encoder.Encode(sample));
  // A tokenizer that ends a text itself has that mark in the prompt's ids too, where the response parts them.
  result.prompt_tokens = CommonPrefix(encoded_prompt.ids, result.row.ids);
  KeepResponse(result.prompt_tokens, 1, &result.row.mask);
  return result;
}

absl::StatusOr<EncodedCompletion> EncodeOne(const ChatRowEncoder& encoder, const PromptWithResponse& sample) {
  absl::StatusOr<EncodedCompletion> result;
  if (sample.kind == Kind::kConversation) {
    result = EncodeConversation(encoder, sample.prompt_messages, sample.response_messages, sample.tools);
  } else if (sample.kind == Kind::kTurns && encoder.has_chat_template()) {
    Value prompt = Value::List({Turn("user", sample.prompt)});
    if (!sample.system_prompt.empty()) prompt = WithSystemPrompt(prompt, sample.system_prompt);
    result = EncodeConversation(encoder, prompt, Value::List({Turn("assistant", sample.response)}), sample.tools);
  } else {
    if (!sample.system_prompt.empty()) {
      return absl::InvalidArgumentError(
          "a system prompt needs turns and a chat template, and here are two texts; remove it");
    }
    result = EncodeTexts(encoder, sample);
  }
  if (result.ok() && ScorableTokens(result->row) == 0) {
    return absl::InvalidArgumentError("the response has no token that can be scored");
  }
  return result;
}

// Cuts `from_start` tokens at the start, and at the end what is more than max_length then.
void Cut(int64_t from_start, int64_t max_length, EncodedRow* row) {
  row->ids.erase(row->ids.begin(), row->ids.begin() + from_start);
  row->mask.erase(row->mask.begin(), row->mask.begin() + from_start);
  if (static_cast<int64_t>(row->ids.size()) <= max_length) return;
  row->ids.resize(static_cast<size_t>(max_length));
  row->mask.resize(static_cast<size_t>(max_length));
}

// How many tokens of the prompt are cut, or nothing where `longest` fits.
absl::StatusOr<std::optional<int64_t>> CutOfPrompt(Truncation truncation, int64_t max_length, int64_t longest,
                                                   int64_t prompt_tokens) {
  if (longest <= max_length) return std::nullopt;
  switch (truncation) {
    case Truncation::kError:
      return absl::InvalidArgumentError(absl::StrCat("has ", longest, " tokens, more than max_length ", max_length,
                                                     " (raise it, or set truncation to left or right)"));
    case Truncation::kMiddle:
      return absl::InvalidArgumentError("truncation middle is not for prompts with responses; left and right are");
    case Truncation::kLeft:
      return std::min(longest - max_length, prompt_tokens);
    case Truncation::kRight:
      return 0;
  }
  return absl::InternalError("a truncation of unknown kind");
}

}  // namespace

absl::StatusOr<EncodedPair> EncodePair(const ChatRowEncoder& encoder, const PreferenceSample& sample) {
  ASSIGN_OR_RETURN(EncodedCompletion chosen, EncodeOne(encoder, sample.chosen));
  ASSIGN_OR_RETURN(EncodedCompletion rejected, EncodeOne(encoder, sample.rejected));
  EncodedPair pair;
  pair.prompt_tokens =
      std::min({chosen.prompt_tokens, rejected.prompt_tokens, CommonPrefix(chosen.row.ids, rejected.row.ids)});
  pair.chosen = std::move(chosen.row);
  pair.rejected = std::move(rejected.row);
  return pair;
}

absl::StatusOr<EncodedCompletion> EncodeCompletion(const ChatRowEncoder& encoder, const LabelledSample& sample) {
  return EncodeOne(encoder, sample.completion);
}

absl::StatusOr<bool> TruncatePair(Truncation truncation, int64_t max_length, EncodedPair* pair) {
  const int64_t longest = static_cast<int64_t>(std::max(pair->chosen.ids.size(), pair->rejected.ids.size()));
  ASSIGN_OR_RETURN(const std::optional<int64_t> cut, CutOfPrompt(truncation, max_length, longest, pair->prompt_tokens));
  if (!cut.has_value()) return false;
  Cut(*cut, max_length, &pair->chosen);
  Cut(*cut, max_length, &pair->rejected);
  pair->prompt_tokens = std::min(pair->prompt_tokens - *cut, max_length);
  return true;
}

absl::StatusOr<bool> TruncateCompletion(Truncation truncation, int64_t max_length, EncodedCompletion* completion) {
  ASSIGN_OR_RETURN(
      const std::optional<int64_t> cut,
      CutOfPrompt(truncation, max_length, static_cast<int64_t>(completion->row.ids.size()), completion->prompt_tokens));
  if (!cut.has_value()) return false;
  Cut(*cut, max_length, &completion->row);
  completion->prompt_tokens = std::min(completion->prompt_tokens - *cut, max_length);
  return true;
}

EncodedRow WithResponseOf(const EncodedCompletion& prompt_of, const EncodedCompletion& response_of) {
  EncodedRow row;
  const auto append = [&](const EncodedRow& from, int64_t begin, int64_t end) {
    row.ids.insert(row.ids.end(), from.ids.begin() + begin, from.ids.begin() + end);
    row.mask.insert(row.mask.end(), from.mask.begin() + begin, from.mask.begin() + end);
  };
  append(prompt_of.row, 0, prompt_of.prompt_tokens);
  append(response_of.row, response_of.prompt_tokens, static_cast<int64_t>(response_of.row.ids.size()));
  return row;
}

}  // namespace sluice::engine
