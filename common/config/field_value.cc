#include "common/config/field_value.h"

#include <google/protobuf/util/message_differencer.h>

#include <cmath>
#include <limits>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/scalar.h"
#include "common/status_macros.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool IsNullText(const std::string& text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

bool IsTemplate(const std::string& text) {
  return absl::StrContains(text, "{{") || absl::StrContains(text, "{%") || absl::StrContains(text, "\n");
}

absl::StatusOr<std::string> ReadText(const Key& key, const std::string& text, const ExpandOptions& expand) {
  ASSIGN_OR_RETURN(std::string value, ParseChoice(text, {key.options.choices().begin(), key.options.choices().end()}));
  const bool is_path = key.options.path() || (key.options.path_or_template() && !IsTemplate(value));
  if (!is_path) return value;
  return ExpandPath(value, expand.working_folder, expand.env);
}

absl::StatusOr<int64_t> ReadInteger(const Key& key, const std::string& text) {
  ASSIGN_OR_RETURN(const int64_t value, ParseInteger(text));
  RETURN_IF_ERROR(CheckBounds(static_cast<double>(value), key.options));
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
  if (key.field->cpp_type() == FieldDescriptor::CPPTYPE_INT32 && (value < kLeast || value > kMost)) {
    return absl::InvalidArgumentError(absl::StrCat("must be at most ", kMost, ", is ", value));
  }
  return value;
}

absl::StatusOr<double> ReadNumber(const Key& key, const std::string& text) {
  ASSIGN_OR_RETURN(const double value, ParseNumber(text));
  RETURN_IF_ERROR(CheckBounds(value, key.options));
  return value;
}

// Sets the field, or adds an element where it is repeated.
absl::Status SetScalar(const Key& key, const std::string& raw, const ExpandOptions& expand, Message* section) {
  ASSIGN_OR_RETURN(const std::string text, ExpandEnvironment(raw, expand.env));
  const auto* reflection = section->GetReflection();
  switch (key.type) {
    case Key::Type::kText: {
      ASSIGN_OR_RETURN(std::string value, ReadText(key, text, expand));
      reflection->SetString(section, key.field, std::move(value));
      return absl::OkStatus();
    }
    case Key::Type::kTextList: {
      ASSIGN_OR_RETURN(std::string value, ReadText(key, text, expand));
      reflection->AddString(section, key.field, std::move(value));
      return absl::OkStatus();
    }
    case Key::Type::kInteger: {
      ASSIGN_OR_RETURN(const int64_t value, ReadInteger(key, text));
      if (key.field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
        reflection->SetInt32(section, key.field, static_cast<int32_t>(value));
      } else {
        reflection->SetInt64(section, key.field, value);
      }
      return absl::OkStatus();
    }
    case Key::Type::kNumber: {
      ASSIGN_OR_RETURN(const double value, ReadNumber(key, text));
      reflection->SetDouble(section, key.field, value);
      return absl::OkStatus();
    }
    case Key::Type::kNumberList: {
      ASSIGN_OR_RETURN(const double value, ReadNumber(key, text));
      reflection->AddDouble(section, key.field, value);
      return absl::OkStatus();
    }
    case Key::Type::kTruth: {
      ASSIGN_OR_RETURN(const bool value, ParseTruth(text));
      reflection->SetBool(section, key.field, value);
      return absl::OkStatus();
    }
    case Key::Type::kMap:
      break;
  }
  return absl::InvalidArgumentError("expected a map");
}

std::vector<ValueError> SetList(const Key& key, const YamlNode& node, const ExpandOptions& expand, Message* section) {
  std::vector<ValueError> errors;
  section->GetReflection()->ClearField(section, key.field);
  for (size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    absl::Status status =
        item.kind == YamlNode::Kind::kScalar
            ? SetScalar(key, item.text, expand, section)
            : absl::InvalidArgumentError(absl::StrCat("expected a single value, got ", KindName(item.kind)));
    if (!status.ok()) errors.push_back({static_cast<int>(i), item.line, std::string(status.message())});
  }
  const v1::KeyOptions& options = key.options;
  const auto count = static_cast<int>(node.items.size());
  if ((options.has_min_items() && count < options.min_items()) ||
      (options.has_max_items() && count > options.max_items())) {
    errors.push_back({-1, node.line, absl::StrCat("has ", count, " elements (", RulesText(key), ")")});
  }
  return errors;
}

std::string Expected(const Key& key) {
  const std::string type = TypeName(key);
  return absl::StrCat(absl::StrContains("aeiou", type.substr(0, 1)) ? "an " : "a ", type);
}

std::vector<ValueError> One(const YamlNode& node, const absl::Status& status) {
  if (status.ok()) return {};
  return {{-1, node.line, std::string(status.message())}};
}

// YAML 1.2's core schema, in decimal.
absl::StatusOr<google::protobuf::Value> FreeFormScalar(const std::string& text, bool plain) {
  google::protobuf::Value value;
  if (plain && IsNullText(text)) {
    value.set_null_value(google::protobuf::NULL_VALUE);
  } else if (plain && (text == "true" || text == "True" || text == "TRUE")) {
    value.set_bool_value(true);
  } else if (plain && (text == "false" || text == "False" || text == "FALSE")) {
    value.set_bool_value(false);
  } else if (const auto integer = ParseInteger(text); plain && integer.ok()) {
    constexpr int64_t kExact = int64_t{1} << 53;  // beyond it doubles skip whole numbers
    if (*integer > kExact || *integer < -kExact) {
      return absl::InvalidArgumentError(absl::StrCat(text, " is too large to be kept exactly"));
    }
    value.set_number_value(static_cast<double>(*integer));
  } else if (const auto number = ParseNumber(text); plain && number.ok()) {
    value.set_number_value(*number);
  } else {
    value.set_string_value(text);
  }
  return value;
}

}  // namespace

bool IsNull(const YamlNode& node, const EnvLookup& env) {
  if (node.kind == YamlNode::Kind::kNull) return true;
  if (node.kind != YamlNode::Kind::kScalar || !node.plain || !absl::StrContains(node.text, "${")) return false;
  const auto text = ExpandEnvironment(node.text, env);
  return text.ok() && !text->empty() && IsNullText(*text);
}

absl::StatusOr<google::protobuf::Value> FreeFormValue(const YamlNode& node, const EnvLookup& env) {
  google::protobuf::Value value;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      value.set_null_value(google::protobuf::NULL_VALUE);
      return value;
    case YamlNode::Kind::kScalar: {
      ASSIGN_OR_RETURN(const std::string text, ExpandEnvironment(node.text, env));
      return FreeFormScalar(text, node.plain);
    }
    case YamlNode::Kind::kList:
      value.mutable_list_value();
      for (const YamlNode& item : node.items) {
        ASSIGN_OR_RETURN(*value.mutable_list_value()->add_values(), FreeFormValue(item, env));
      }
      return value;
    case YamlNode::Kind::kMap:
      value.mutable_struct_value();
      for (const YamlEntry& entry : node.entries) {
        ASSIGN_OR_RETURN((*value.mutable_struct_value()->mutable_fields())[entry.key], FreeFormValue(entry.value, env));
      }
      return value;
  }
  return value;
}

std::vector<ValueError> SetField(const Key& key, const YamlNode& node, const ExpandOptions& expand, Message* section) {
  using Kind = YamlNode::Kind;
  const auto mismatch = [&] {
    return One(node,
               absl::InvalidArgumentError(absl::StrCat("expected ", Expected(key), ", got ", KindName(node.kind))));
  };
  if (key.type == Key::Type::kMap) {
    if (node.kind != Kind::kMap) return mismatch();
    const auto value = FreeFormValue(node, expand.env);
    if (!value.ok()) return One(node, value.status());
    section->GetReflection()->ClearField(section, key.field);  // an empty map is the same as none
    if (!node.entries.empty()) {
      section->GetReflection()->MutableMessage(section, key.field)->CopyFrom(value->struct_value());
    }
    return {};
  }
  if (key.field->is_repeated()) {
    if (node.kind == Kind::kList) return SetList(key, node, expand, section);
    if (node.kind != Kind::kScalar || !key.options.scalar_as_list()) return mismatch();
    YamlNode list;
    list.kind = Kind::kList;
    list.line = node.line;
    list.items.push_back(node);
    return SetList(key, list, expand, section);
  }
  if (node.kind != Kind::kScalar) return mismatch();
  return One(node, SetScalar(key, node.text, expand, section));
}

std::vector<ValueError> SetFieldFromText(const Key& key, const std::string& text, const ExpandOptions& expand,
                                         Message* section) {
  std::vector<ConfigError> errors;
  std::optional<YamlNode> node = ParseYaml(text, "", &errors);
  if (!node) return {};  // schema_test and recipes_test prove that every default reads
  if (node->kind == YamlNode::Kind::kNull) node->kind = YamlNode::Kind::kScalar;
  return SetField(key, *node, expand, section);
}

void SetDefault(const Key& key, const ExpandOptions& expand, Message* section) {
  section->GetReflection()->ClearField(section, key.field);
  if (key.options.has_default_value()) SetFieldFromText(key, key.options.default_value(), expand, section);
}

bool HasValue(const Key& key, const std::string& text, const Message& section) {
  const std::unique_ptr<Message> other(section.New());
  other->CopyFrom(section);
  other->GetReflection()->ClearField(other.get(), key.field);
  SetFieldFromText(key, text, /*expand=*/{}, other.get());
  return google::protobuf::util::MessageDifferencer::Equals(section, *other);
}

bool HasDefault(const Key& key, const Message& section) {
  const std::unique_ptr<Message> other(section.New());
  other->CopyFrom(section);
  SetDefault(key, /*expand=*/{}, other.get());
  return google::protobuf::util::MessageDifferencer::Equals(section, *other);
}

}  // namespace sluice
