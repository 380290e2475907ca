// An encoder for tests: one token per byte, so that what was encoded can be read back from the ids.
#pragma once

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/data/row_encoder.h"

namespace sluice::engine {

// A chat is "<role>content" for each message and the token 0 at its end; assistant messages are scored with their end.
// Two texts are prompt + response + 0 with the response scored; a text is text + 0, all scored. The text "refuse" is an
// error.
class FakeRowEncoder : public RowEncoder {
 public:
  absl::StatusOr<EncodedRow> Encode(const Sample& sample) const override {
    ++calls;
    EncodedRow row;
    if (sample.kind == Sample::Kind::kText) {
      if (sample.text == "refuse") return absl::InvalidArgumentError("refused");
      Append(sample.text, true, &row);
      Append(std::string(1, '\0'), true, &row);
    } else if (sample.kind == Sample::Kind::kContinuation || !has_template) {
      Append(sample.prompt, false, &row);
      Append(sample.response, true, &row);
      Append(std::string(1, '\0'), true, &row);
    } else {
      for (const jinja::Value& message : sample.messages.items()) {
        const bool scored = message.Field("role").string() == "assistant";
        Append(absl::StrCat("<", message.Field("role").string(), ">"), false, &row);
        Append(message.Field("content").string() + '\0', scored, &row);
      }
    }
    return row;
  }
  std::string Fingerprint() const override { return absl::StrCat("fake ", has_template, " ", version); }
  bool has_chat_template() const override { return has_template; }

  static std::string Text(const int32_t* ids, int64_t tokens) { return std::string(ids, ids + tokens); }

  bool has_template = true;
  int version = 1;
  mutable std::atomic<int64_t> calls{0};

 private:
  static void Append(const std::string& text, bool scored, EncodedRow* row) {
    for (unsigned char byte : text) row->ids.push_back(byte);
    row->mask.resize(row->ids.size(), scored);
  }
};

}  // namespace sluice::engine
