#include "engine/tokenizer/json_node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::engine {
namespace {

const nlohmann::json& NullValue() {
  static const nlohmann::json* const value = new nlohmann::json;
  return *value;
}

std::string Shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

absl::Status JsonNode::Error(std::string_view message) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_.empty() ? "(top level)" : path_, ": ", absl::string_view(message.data(), message.size())));
}

absl::Status JsonNode::NotSupported(std::string_view what) const {
  return Error(absl::StrCat("not supported: ", absl::string_view(what.data(), what.size())));
}

absl::Status JsonNode::HasOnlyKeys(std::initializer_list<std::string_view> known) const {
  if (!value_->is_object()) return Error(absl::StrCat("expected an object, got ", Shown(*value_)));
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Child(key).NotSupported(
          absl::StrCat("unknown key (expected ",
                       absl::StrJoin(known, ", ", [](std::string* out, std::string_view k) { out->append(k); }), ")"));
    }
  }
  return absl::OkStatus();
}

JsonNode JsonNode::Child(std::string_view key) const {
  const auto it = value_->find(std::string(key));
  std::string path =
      path_.empty() ? std::string(key) : absl::StrCat(path_, ".", absl::string_view(key.data(), key.size()));
  return JsonNode(it == value_->end() ? &NullValue() : &*it, std::move(path));
}

absl::StatusOr<std::vector<JsonNode>> JsonNode::Elements() const {
  if (!value_->is_array()) return Error(absl::StrCat("expected a list, got ", Shown(*value_)));
  std::vector<JsonNode> elements;
  elements.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) elements.emplace_back(&(*value_)[i], absl::StrCat(path_, "[", i, "]"));
  return elements;
}

absl::StatusOr<std::string> JsonNode::AsString() const {
  if (!value_->is_string()) return Error(absl::StrCat("expected a string, got ", Shown(*value_)));
  return value_->get<std::string>();
}

absl::StatusOr<bool> JsonNode::Bool(std::string_view key) const {
  const JsonNode child = Child(key);
  if (!child.value().is_boolean())
    return child.Error(absl::StrCat("expected true or false, got ", Shown(child.value())));
  return child.value().get<bool>();
}

absl::StatusOr<bool> JsonNode::Bool(std::string_view key, bool fallback) const {
  return Child(key).is_null() ? absl::StatusOr<bool>(fallback) : Bool(key);
}

absl::StatusOr<int32_t> JsonNode::AsId() const {
  constexpr int64_t kLimit = int64_t{1} << 31;
  if (!value_->is_number_integer() || (value_->is_number_unsigned() && value_->get<uint64_t>() >= kLimit) ||
      value_->get<int64_t>() < 0) {
    return Error(absl::StrCat("expected a whole number from 0 to ", kLimit - 1, ", got ", Shown(*value_)));
  }
  return static_cast<int32_t>(value_->get<int64_t>());
}

}  // namespace sluice::engine
