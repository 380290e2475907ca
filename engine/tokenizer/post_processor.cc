#include "engine/tokenizer/post_processor.h"

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace sluice::engine {
namespace {

absl::Status AppendTokenIds(const JsonNode& piece, const JsonNode& special_tokens, std::vector<int32_t>* ids) {
  ASSIGN_OR_RETURN(const std::string name, piece.String("id"));
  const JsonNode token = special_tokens.value().is_object() ? special_tokens.Child(name) : special_tokens;
  if (!token.value().is_object())
    return piece.Child("id").Error(absl::StrCat(name, " is not in ", special_tokens.path()));
  ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, token.Child("ids").Elements());
  for (const JsonNode& element : elements) {
    ASSIGN_OR_RETURN(const int32_t id, element.AsId());
    ids->push_back(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<PostProcessor> FromTemplate(const JsonNode& node) {
  RETURN_IF_ERROR(node.HasOnlyKeys({"type", "single", "pair", "special_tokens"}));
  PostProcessor result;
  bool after_text = false;
  ASSIGN_OR_RETURN(const std::vector<JsonNode> pieces, node.Child("single").Elements());
  for (const JsonNode& piece : pieces) {
    RETURN_IF_ERROR(piece.HasOnlyKeys({"SpecialToken", "Sequence"}));
    if (!piece.Child("SpecialToken").is_null()) {
      RETURN_IF_ERROR(AppendTokenIds(piece.Child("SpecialToken"), node.Child("special_tokens"),
                                     after_text ? &result.after : &result.before));
      continue;
    }
    const JsonNode sequence = piece.Child("Sequence");
    RETURN_IF_ERROR(sequence.HasOnlyKeys({"id", "type_id"}));
    if (sequence.Child("id").value() != "A" || after_text) {
      return sequence.NotSupported("a template that does not hold the sequence A exactly once");
    }
    after_text = true;
  }
  if (!after_text) return node.Child("single").NotSupported("a template without the sequence A");
  return result;
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const JsonNode& node) {
  if (node.is_null()) return PostProcessor();
  if (!node.value().is_object()) return node.Error("expected an object or null");
  ASSIGN_OR_RETURN(const std::string type, node.String("type"));
  if (type == "TemplateProcessing") return FromTemplate(node);
  if (type == "ByteLevel") {
    RETURN_IF_ERROR(node.HasOnlyKeys({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    return PostProcessor();
  }
  if (type != "Sequence") {
    return node.Child("type").NotSupported(
        absl::StrCat("\"", type, "\" (expected TemplateProcessing, ByteLevel or Sequence)"));
  }
  RETURN_IF_ERROR(node.HasOnlyKeys({"type", "processors"}));
  ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, node.Child("processors").Elements());
  PostProcessor result;
  for (const JsonNode& element : elements) {
    // Each processor wraps what the ones before it made.
    ASSIGN_OR_RETURN(const PostProcessor outer, FromJson(element));
    result.before.insert(result.before.begin(), outer.before.begin(), outer.before.end());
    result.after.insert(result.after.end(), outer.after.begin(), outer.after.end());
  }
  return result;
}

}  // namespace sluice::engine
