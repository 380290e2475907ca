#include "engine/data/chat_row_encoder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "common/file_system.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/content_hash.h"
#include "engine/template/assistant_mask.h"
#include "engine/template/huggingface_template.h"
#include "engine/template/tool_arguments.h"

namespace sluice::engine {
namespace {

// Part of every fingerprint: raise it whenever the same files would now give other tokens or another mask.
constexpr std::string_view kEncoderVersion = "chat row encoder 1";

const absl::Time kTemplateDate = absl::FromCivil(absl::CivilDay(2024, 7, 26), absl::UTCTimeZone());

absl::StatusOr<std::string> TemplateSource(const std::string& custom_chat_template) {
  if (custom_chat_template.find('{') != std::string::npos) return custom_chat_template;
  absl::StatusOr<std::string> source = PosixFileSystem().ReadFile(custom_chat_template);
  if (!source.ok()) return Annotate(source.status(), "custom_chat_template");
  return source;
}

}  // namespace

absl::StatusOr<LossOn> ParseLossOn(std::string_view name) {
  if (name == "assistant") return LossOn::kAssistant;
  if (name == "all") return LossOn::kAll;
  return absl::InvalidArgumentError(absl::StrCat("unknown loss_on \"", std::string(name), "\"; one of assistant, all"));
}

absl::StatusOr<std::unique_ptr<ChatRowEncoder>> ChatRowEncoder::Load(const std::filesystem::path& folder,
                                                                     const std::string& custom_chat_template,
                                                                     LossOn loss_on) {
  std::unique_ptr<ChatRowEncoder> encoder(new ChatRowEncoder());
  encoder->loss_on_ = loss_on;
  ContentHasher hasher;
  hasher.AddField(kEncoderVersion);
  hasher.AddField(loss_on == LossOn::kAll ? "all" : "assistant");

  const std::filesystem::path tokenizer_json = folder / "tokenizer.json";
  ASSIGN_OR_RETURN(encoder->tokenizer_, Tokenizer::Load(tokenizer_json));
  ASSIGN_OR_RETURN(const std::string tokenizer_bytes, PosixFileSystem().ReadFile(tokenizer_json.string()));
  hasher.AddField(tokenizer_bytes);

  ASSIGN_OR_RETURN(HuggingFaceTemplate found, LoadHuggingFaceTemplate(folder));
  encoder->special_tokens_ = std::move(found.special_tokens);
  std::optional<std::string> source = std::move(found.source);
  std::optional<std::string> tool_source;
  if (!custom_chat_template.empty()) {
    ASSIGN_OR_RETURN(source, TemplateSource(custom_chat_template));
  } else if (const auto tool_use = found.named.find("tool_use"); tool_use != found.named.end()) {
    tool_source = tool_use->second;
  }
  if (source.has_value()) {
    ASSIGN_OR_RETURN(encoder->chat_template_, ChatTemplate::Compile(*source));
  }
  if (tool_source.has_value()) {
    ASSIGN_OR_RETURN(encoder->tool_template_, ChatTemplate::Compile(*tool_source));
  }
  hasher.AddField(source.value_or(""));
  hasher.AddField(tool_source.value_or(""));
  for (const auto& [name, token] : encoder->special_tokens_) {
    hasher.AddField(name);
    hasher.AddField(token);
  }
  encoder->fingerprint_ = hasher.Hex();

  if (const auto eos = encoder->special_tokens_.find("eos_token"); eos != encoder->special_tokens_.end()) {
    encoder->eos_token_id_ = encoder->tokenizer_->TokenToId(eos->second);
  }
  return encoder;
}

absl::StatusOr<EncodedRow> ChatRowEncoder::Encode(const Sample& sample) const {
  switch (sample.kind) {
    case Sample::Kind::kConversation:
      return EncodeChat(sample);
    case Sample::Kind::kPromptResponse:
      if (has_chat_template()) return EncodeChat(sample);
      [[fallthrough]];
    case Sample::Kind::kContinuation:
      return EncodeText(sample.prompt + sample.response, sample.prompt.size());
    case Sample::Kind::kText:
      return EncodeText(sample.text, 0);
  }
  return absl::InternalError("a sample of unknown kind");
}

absl::StatusOr<RenderOptions> ChatRowEncoder::OptionsFor(const Sample& sample) const {
  if (!has_chat_template()) {
    return absl::InvalidArgumentError("a conversation needs a chat template and the model folder has none");
  }
  RenderOptions options;
  options.special_tokens = special_tokens_;
  options.now = kTemplateDate;
  if (sample.tools.has_value()) options.tools = &*sample.tools;
  if (sample.enable_thinking.has_value()) {
    options.variables["enable_thinking"] = jinja::Value::Bool(*sample.enable_thinking);
  }
  return options;
}

const ChatTemplate& ChatRowEncoder::TemplateFor(const Sample& sample) const {
  return sample.tools.has_value() && tool_template_ != nullptr ? *tool_template_ : *chat_template_;
}

absl::StatusOr<EncodedRow> ChatRowEncoder::EncodeChat(const Sample& sample) const {
  ASSIGN_OR_RETURN(const RenderOptions options, OptionsFor(sample));
  ASSIGN_OR_RETURN(const jinja::Value messages, ParseToolArguments(sample.messages));
  ASSIGN_OR_RETURN(const SupervisedChat chat, RenderSupervised(TemplateFor(sample), messages, options));
  Encoding encoding = tokenizer_->EncodeWithOffsets(chat.text);  // the template writes the special tokens itself
  EncodedRow row;
  row.mask = loss_on_ == LossOn::kAll ? std::vector<uint8_t>(encoding.ids.size(), 1)
                                      : MaskFromSpans(encoding.ranges, chat.supervised);
  row.ids = std::move(encoding.ids);
  return row;
}

absl::StatusOr<EncodedRow> ChatRowEncoder::EncodeText(const std::string& text, size_t scored_from) const {
  if (!eos_token_id_.has_value()) {
    return absl::InvalidArgumentError(
        "the model folder names no eos_token in tokenizer_config.json that its tokenizer has; a text needs it as its "
        "end");
  }
  Encoding encoding = tokenizer_->EncodeWithOffsets(text, {.add_special_tokens = true});
  EncodedRow row;
  if (loss_on_ == LossOn::kAll || scored_from == 0) {
    row.mask.assign(encoding.ids.size(), 1);
  } else {
    row.mask = MaskFromSpans(encoding.ranges, {{scored_from, text.size()}});
  }
  row.ids = std::move(encoding.ids);
  // Some tokenizers end a text themselves; its end is to be learned once.
  if (row.ids.empty() || row.ids.back() != *eos_token_id_) {
    row.ids.push_back(*eos_token_id_);
    row.mask.push_back(1);
  }
  row.mask.back() = 1;
  return row;
}

}  // namespace sluice::engine
