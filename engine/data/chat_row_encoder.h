// The encoder of real jobs: a model folder's tokenizer and chat template.
//
// Conversations (and prompt with response, where there is a template): the ids of the whole rendering, with what the
// assistant says and the mark that ends its turn scored. Tool calls whose arguments are JSON text are given to the
// template as objects. A row with tools uses the folder's `tool_use` template where it has one. Two texts joined: what
// the tokenizer puts in front of a text, prompt, response, end-of-sequence; response and end-of-sequence scored, and
// with them a token that spans the border. The two are tokenised as one text. Plain text: what the tokenizer puts in
// front, text, end-of-sequence, all scored.
//
// A template that asks for today's date (strftime_now) always gets 26 Jul 2024, the date Llama 3's templates fall back
// to: the tokens must not depend on the day a run starts.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/data/prompt_encoder.h"
#include "engine/data/row_encoder.h"
#include "engine/template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace sluice::engine {

enum class LossOn {
  kAssistant,  // as described above
  kAll,        // every token
};

// From `assistant`, `all`; kInvalidArgument names them.
absl::StatusOr<LossOn> ParseLossOn(std::string_view name);

class ChatRowEncoder : public RowEncoder, public PromptEncoder {
 public:
  // Reads tokenizer.json, the chat template and the special tokens of a Hugging Face folder. `custom_chat_template`
  // wins over the folder's: template source where it holds `{`, else the path of a file with it; empty: the folder's
  // own. NotFound and kInvalidArgument name the file.
  static absl::StatusOr<std::unique_ptr<ChatRowEncoder>> Load(const std::filesystem::path& folder,
                                                              const std::string& custom_chat_template, LossOn loss_on);

  absl::StatusOr<EncodedRow> Encode(const Sample& sample) const override;
  // Does not depend on loss_on.
  absl::StatusOr<EncodedPrompt> EncodePrompt(const Sample& sample) const override;
  std::string Fingerprint() const override { return fingerprint_; }
  bool has_chat_template() const override { return chat_template_ != nullptr; }

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Null where the model has none.
  const ChatTemplate* chat_template() const { return chat_template_.get(); }
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }
  // The id of the special token "eos_token"; nothing where the folder names none.
  std::optional<int32_t> eos_token_id() const { return eos_token_id_; }

 private:
  ChatRowEncoder() = default;

  // What the sample's template is given beside the messages; it points into `sample`. kInvalidArgument: no template.
  absl::StatusOr<RenderOptions> OptionsFor(const Sample& sample) const;
  // REQUIRES: has_chat_template().
  const ChatTemplate& TemplateFor(const Sample& sample) const;
  absl::StatusOr<EncodedRow> EncodeChat(const Sample& sample) const;
  // Scores the tokens of text[scored_from..] and the end-of-sequence.
  absl::StatusOr<EncodedRow> EncodeText(const std::string& text, size_t scored_from) const;

  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const ChatTemplate> chat_template_;
  std::unique_ptr<const ChatTemplate> tool_template_;  // null: chat_template_ serves rows with tools too
  std::map<std::string, std::string> special_tokens_;
  std::optional<int32_t> eos_token_id_;
  LossOn loss_on_ = LossOn::kAssistant;
  std::string fingerprint_;
};

}  // namespace sluice::engine
