#include "common/config/yaml_writer.h"

#include <google/protobuf/struct.pb.h>

#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/config/scalar.h"
#include "common/config/schema.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Letters, digits and path characters only, so that no rule of YAML can apply; and no word that means null.
bool IsPlainSafe(const std::string& text) {
  if (text.empty() || text == "~" || absl::AsciiStrToLower(text) == "null") return false;
  if (text[0] == '-' || text[0] == '.') return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.' && c != '/') return false;
  }
  return true;
}

// Plain where that is safe, else in double quotes.
std::string Scalar(const std::string& text) {
  if (IsPlainSafe(text)) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppend(&out, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The same text for a free-form key must not look like a number or a truth value either.
std::string FreeFormText(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  const bool typed = lower == "true" || lower == "false" || ParseNumber(text).ok();
  return typed ? absl::StrCat("\"", text, "\"") : YamlText(text);
}

std::string FreeForm(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case google::protobuf::Value::kNumberValue:
      return FormatNumber(value.number_value());
    case google::protobuf::Value::kStringValue:
      return FreeFormText(value.string_value());
    case google::protobuf::Value::kListValue:
      return absl::StrCat(
          "[",
          absl::StrJoin(value.list_value().values(), ", ",
                        [](std::string* out, const auto& item) { absl::StrAppend(out, FreeForm(item)); }),
          "]");
    case google::protobuf::Value::kStructValue: {
      std::map<std::string, std::string> fields;  // ordered, so that the text is stable
      for (const auto& [key, field] : value.struct_value().fields()) fields[Scalar(key)] = FreeForm(field);
      return absl::StrCat("{", absl::StrJoin(fields, ", ", absl::PairFormatter(": ")), "}");
    }
    default:
      return "null";
  }
}

// An element of a list of maps on one line: what of it is set.
std::string Element(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  std::vector<std::string> entries;
  for (const FieldDescriptor* field : fields) {
    const std::string value = IsSection(field) ? Element(message.GetReflection()->GetMessage(message, field))
                                               : YamlValue(*Schema::Get().Find(field), message);
    entries.push_back(absl::StrCat(field->name(), ": ", value));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

}  // namespace

std::string YamlValue(const Key& key, const Message& section) {
  const auto* reflection = section.GetReflection();
  if (key.type == Key::Type::kMap) {
    google::protobuf::Value value;
    value.mutable_struct_value()->CopyFrom(reflection->GetMessage(section, key.field));
    return FreeForm(value);
  }
  if (key.field->is_repeated()) {
    std::vector<std::string> elements;
    for (int i = 0; i < reflection->FieldSize(section, key.field); ++i) {
      elements.push_back(key.type == Key::Type::kTextList
                             ? YamlText(reflection->GetRepeatedString(section, key.field, i))
                             : FormatNumber(reflection->GetRepeatedDouble(section, key.field, i)));
    }
    return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
  }
  if (key.nullable() && !reflection->HasField(section, key.field)) return "null";
  switch (key.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection->GetInt32(section, key.field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection->GetInt64(section, key.field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return FormatNumber(reflection->GetDouble(section, key.field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(section, key.field) ? "true" : "false";
    default:
      return YamlText(reflection->GetString(section, key.field));
  }
}

std::string WriteJobSpec(const v1::JobSpec& spec) {
  std::string out;
  for (const Section& section : Schema::Get().sections()) {
    if (section.in_list()) {
      if (!absl::EndsWith(section.path, "[]")) continue;
      const std::string name = section.path.substr(0, section.path.size() - 2);
      const FieldDescriptor* field = spec.GetDescriptor()->FindFieldByName(name);
      const int count = spec.GetReflection()->FieldSize(spec, field);
      absl::StrAppend(&out, name, count == 0 ? ": []\n" : ":\n");
      for (int i = 0; i < count; ++i) {
        absl::StrAppend(&out, "  - ", Element(spec.GetReflection()->GetRepeatedMessage(spec, field, i)), "\n");
      }
      continue;
    }
    const std::string indent = SectionIndent(section);
    if (!section.path.empty()) absl::StrAppend(&out, indent.substr(2), SectionName(section), ":\n");
    for (const Key& key : section.keys) {
      absl::StrAppend(&out, indent, key.name, ": ", YamlValue(key, SectionOf(spec, section)), "\n");
    }
  }
  return out;
}

std::string YamlText(const std::string& text) { return Scalar(absl::StrReplaceAll(text, {{"${", "$${"}})); }

}  // namespace sluice
