#include "common/config/job_reader.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/config/field_value.h"
#include "common/config/other_recipes.h"
#include "common/config/recipes.h"
#include "common/config/scalar.h"
#include "common/config/schema.h"
#include "common/config/stage_options.h"
#include "common/config/suggest.h"
#include "common/config/validate.h"
#include "common/config/yaml_document.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : absl::StrCat(path, ".", name);
}

// "data.train_files[1]" → "data.train_files".
std::string WithoutIndex(const std::string& path) { return path.substr(0, path.find('[')); }

class Reader {
 public:
  Reader(const LoadOptions& options, LoadResult* result)
      : file_(options.file), expand_{options.env, options.working_folder}, result_(result) {}

  // Puts the value into the tree, under the names of the table, so that it replaces what the file has there.
  void ApplyOverride(const std::string& text, YamlNode* root);
  // False: there is nothing that could be a job.
  bool Read(const YamlNode& root) {
    if (root.kind != YamlNode::Kind::kMap && root.kind != YamlNode::Kind::kNull) {
      Report("", root.line, absl::StrCat("expected a map of keys at the top, got ", KindName(root.kind)));
      return false;
    }
    if (root.kind == YamlNode::Kind::kNull) Report("", 0, "the file is empty");
    ReadSection(root, "", v1::JobSpec::descriptor(), &result_->spec);
    UseRecipe();
    result_->errors.insert(result_->errors.end(), missing_.begin(), missing_.end());
    return true;
  }

 private:
  void ReadSection(const YamlNode& node, const std::string& path, const Descriptor* message, Message* out);
  void ReadEntry(const YamlEntry& entry, const std::string& path, const FieldDescriptor* field, Message* out);
  // A list of maps.
  void ReadElements(const YamlEntry& entry, const std::string& path, const FieldDescriptor* field, Message* out);
  void UseDefault(const Key& key, const std::string& path, Message* out);
  void UseValue(const Key& key, const std::string& value, Message* out);
  // The recipe's defaults, for the keys that were not given.
  void UseRecipe();
  // "engine.dtype" → {"engine", "model_dtype"}; `path` becomes the dotted path as far as it was understood.
  absl::StatusOr<std::vector<std::string>> CanonicalNames(const std::string& dotted, std::string* path);
  void UnknownKey(const std::string& parent, const std::string& name, int line);
  void Report(const std::string& path, int line, const std::string& message) {
    const Origin origin = OriginOf(path, line);
    result_->errors.push_back({origin.source, origin.line, path, message, {}});
  }
  // The override that set `path` or a section around it, else the file.
  Origin OriginOf(const std::string& path, int line) const {
    for (std::string prefix = WithoutIndex(path); !prefix.empty();) {
      if (const auto found = overridden_.find(prefix); found != overridden_.end()) return {found->second, 0};
      const size_t dot = prefix.rfind('.');
      if (dot == std::string::npos) break;
      prefix.resize(dot);
    }
    return {file_, line};
  }

  const std::string file_;
  const ExpandOptions expand_;
  LoadResult* result_;
  std::map<std::string, std::string> overridden_;  // canonical path → "override key=value"
  std::vector<ConfigError> missing_;               // required keys, reported after everything in the file
};

void Reader::UnknownKey(const std::string& parent, const std::string& name, int line) {
  std::string hint = absl::StrCat(CodePointNote(name), Schema::Get().Suggestion(parent, name));
  if (parent.empty() && hint.empty())
    hint = " (a helper map for anchors may stand under a top-level key that begins with x-)";
  Report(Join(parent, name), line, absl::StrCat("unknown key", hint));
}

void Reader::ReadSection(const YamlNode& node, const std::string& path, const Descriptor* message, Message* out) {
  std::map<const FieldDescriptor*, const YamlEntry*> given;
  for (const YamlEntry& entry : node.entries) {
    if (path.empty() && absl::StartsWith(entry.key, "x-")) continue;
    const FieldDescriptor* field = Schema::Get().FieldNamed(message, entry.key);
    if (field == nullptr) {
      UnknownKey(path, entry.key, entry.line);
      continue;
    }
    const auto [first, is_new] = given.emplace(field, &entry);
    if (!is_new) {
      Report(Join(path, entry.key), entry.line,
             absl::StrCat("is the same key as ", first->second->key, " on line ", first->second->line,
                          "; which one is meant?"));
      continue;
    }
    ReadEntry(entry, path, field, out);
  }
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    if (given.count(field) > 0) continue;
    if (const Key* key = Schema::Get().Find(field)) {
      UseDefault(*key, Join(path, field->name()), out);
    } else if (!field->is_repeated() && !absl::EndsWith(path, "]")) {
      // Of an element of a list a section that is absent stays so.
      ReadSection(YamlNode(), Join(path, field->name()), field->message_type(),
                  out->GetReflection()->MutableMessage(out, field));
    }
  }
}

void Reader::ReadEntry(const YamlEntry& entry, const std::string& path, const FieldDescriptor* field, Message* out) {
  const std::string full = Join(path, field->name());
  const YamlNode& node = entry.value;
  if (IsSection(field) && field->is_repeated()) return ReadElements(entry, full, field, out);
  if (IsSection(field)) {
    if (node.kind == YamlNode::Kind::kNull) {
      Report(full, entry.line, "is empty; its keys stand below it, indented (leave the line out to use the defaults)");
    } else if (node.kind != YamlNode::Kind::kMap) {
      Report(full, node.line, absl::StrCat("expected a map of keys, got ", KindName(node.kind)));
    }
    return ReadSection(node, full, field->message_type(), out->GetReflection()->MutableMessage(out, field));
  }
  const Key& key = *Schema::Get().Find(field);
  if (IsNull(node, expand_.env)) return UseDefault(key, full, out);
  result_->origins[full] = OriginOf(full, entry.line);
  for (const ValueError& error : SetField(key, node, expand_, out)) {
    Report(error.element < 0 ? full : absl::StrCat(full, "[", error.element, "]"), error.line, error.message);
  }
}

void Reader::ReadElements(const YamlEntry& entry, const std::string& path, const FieldDescriptor* field, Message* out) {
  const YamlNode& node = entry.value;
  if (node.kind == YamlNode::Kind::kNull) return;
  result_->origins[path] = OriginOf(path, entry.line);
  if (node.kind != YamlNode::Kind::kList) {
    return Report(path, node.line, absl::StrCat("expected a list of maps, got ", KindName(node.kind)));
  }
  for (size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    const std::string element = absl::StrCat(path, "[", i, "]");
    Message* message = out->GetReflection()->AddMessage(out, field);
    if (item.kind != YamlNode::Kind::kMap) {
      Report(element, item.line, absl::StrCat("expected a map of keys, got ", KindName(item.kind)));
      continue;
    }
    result_->origins[element] = OriginOf(element, item.line);
    ReadSection(item, element, field->message_type(), message);
  }
}

void Reader::UseDefault(const Key& key, const std::string& path, Message* out) {
  if (key.options.required()) {
    const auto element = result_->origins.find(path.substr(0, path.rfind('.')));
    const int line =
        path.find('[') != std::string::npos && element != result_->origins.end() ? element->second.line : 0;
    missing_.push_back({file_, line, path, RequiredMessage(key), {}});
    return;
  }
  if (key.options.has_default_value()) UseValue(key, key.options.default_value(), out);
}

void Reader::UseValue(const Key& key, const std::string& text, Message* out) {
  for (const ValueError& error : SetFieldFromText(key, text, expand_, out)) Report(key.path, 0, error.message);
}

void Reader::UseRecipe() {
  const Recipe* recipe = FindRecipe(result_->spec.recipe());
  if (recipe == nullptr) return;
  for (const RecipeDefault& value : recipe->defaults) {
    if (result_->origins.contains(value.key)) continue;
    const std::vector<std::string> names = absl::StrSplit(value.key, '.');
    Message* section = &result_->spec;
    for (size_t i = 0; i + 1 < names.size(); ++i) {
      const FieldDescriptor* field = section->GetDescriptor()->FindFieldByName(names[i]);
      section = section->GetReflection()->MutableMessage(section, field);
    }
    UseValue(*Schema::Get().Find(value.key), value.value, section);
  }
  if (recipe->name != "dataflow") return;
  const auto given = [this](const std::string& key) {
    const auto found = result_->origins.lower_bound(key);  // the key, or the first below the section
    return found != result_->origins.end() && (found->first == key || absl::StartsWith(found->first, key + "."));
  };
  ApplyStageOptions(given, &result_->spec);
}

absl::StatusOr<std::vector<std::string>> Reader::CanonicalNames(const std::string& dotted, std::string* path) {
  const Schema& schema = Schema::Get();
  const Descriptor* message = v1::JobSpec::descriptor();  // nullptr below a free-form map
  std::vector<std::string> names = absl::StrSplit(dotted, '.');
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string parent = *path;
    *path = Join(parent, names[i]);
    if (message == nullptr) continue;
    const FieldDescriptor* field = schema.FieldNamed(message, names[i]);
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown key", CodePointNote(names[i]), schema.Suggestion(parent, names[i])));
    }
    names[i] = field->name();
    *path = Join(parent, names[i]);
    if (IsSection(field) && field->is_repeated() && i + 1 < names.size()) {
      return absl::InvalidArgumentError(absl::StrCat("is a list and is replaced whole: '", *path, "=[{...}, {...}]'"));
    }
    const Key* key = schema.Find(field);
    if (key != nullptr && key->type != Key::Type::kMap && i + 1 < names.size()) {
      return absl::InvalidArgumentError(absl::StrCat("is one value (", TypeName(*key), ") and has no keys below it"));
    }
    message = IsSection(field) ? field->message_type() : nullptr;
  }
  return names;
}

void Reader::ApplyOverride(const std::string& text, YamlNode* root) {
  const std::string source = absl::StrCat("override ", text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    result_->errors.push_back({source, 0, "", "expected key=value, for example optim.lr=1e-5", {}});
    return;
  }
  std::string path;
  const auto names = CanonicalNames(text.substr(0, equals), &path);
  if (!names.ok()) {
    result_->errors.push_back({source, 0, path, std::string(names.status().message()), {}});
    return;
  }
  auto value = ParseYaml(text.substr(equals + 1), source, &result_->errors);
  if (!value) return;

  const Descriptor* message = v1::JobSpec::descriptor();
  YamlNode* node = root;
  for (const std::string& name : *names) {
    if (node->kind == YamlNode::Kind::kNull) node->kind = YamlNode::Kind::kMap;
    if (node->kind != YamlNode::Kind::kMap) return;  // the file's own mistake, reported when it is read
    const FieldDescriptor* field = message == nullptr ? nullptr : message->FindFieldByName(name);
    const auto same = [&](const YamlEntry& entry) {
      return field == nullptr ? entry.key == name : Schema::Get().FieldNamed(message, entry.key) == field;
    };
    auto entry = std::find_if(node->entries.begin(), node->entries.end(), same);
    if (entry == node->entries.end()) entry = node->entries.insert(entry, {name, 0, {}});
    node = &entry->value;
    message = field != nullptr && IsSection(field) ? field->message_type() : nullptr;
  }
  *node = *std::move(value);
  overridden_[path] = source;
}

// The key that a rule is about, and all others that it reads, were understood.
bool MayJudge(const ConfigError& error, const std::set<std::string>& not_read) {
  const auto broken = [&](const std::string& path) {
    return not_read.count(WithoutIndex(path)) > 0 || not_read.count(path.substr(0, path.find('.'))) > 0;
  };
  return !broken(error.path) && std::none_of(error.also_involves.begin(), error.also_involves.end(), broken);
}

absl::StatusOr<std::string> ReadText(const LoadOptions& options) {
  if (options.text) return *options.text;
  const bool absolute = absl::StartsWith(options.file, "/");
  return options.file_system->ReadFile(absolute ? options.file : JoinPath(options.working_folder, options.file));
}

}  // namespace

ConfigError WithOrigin(ConfigError error, const std::map<std::string, Origin>& origins) {
  // The nearest that was given: the key, the element of a list around it, the list.
  auto found = origins.find(error.path);
  if (found == origins.end()) {
    const size_t bracket = error.path.find(']');
    found = origins.find(bracket == std::string::npos ? error.path : error.path.substr(0, bracket + 1));
  }
  if (found == origins.end()) found = origins.find(WithoutIndex(error.path));
  if (error.source.empty() && found != origins.end()) {
    error.source = found->second.source;
    error.line = found->second.line;
  }
  return error;
}

LoadResult LoadJob(const LoadOptions& options) {
  LoadResult result;
  const auto text = ReadText(options);
  if (!text.ok()) {
    result.errors.push_back({"", 0, "", std::string(text.status().message()), {}});
    return result;
  }
  auto root = ParseYaml(*text, options.file, &result.errors);
  if (!root) return result;
  Reader reader(options, &result);
  for (const std::string& override_text : options.overrides) reader.ApplyOverride(override_text, &*root);
  if (!reader.Read(*root)) return result;

  std::set<std::string> not_read;
  for (const ConfigError& error : result.errors) not_read.insert(WithoutIndex(error.path));
  std::vector<ConfigError> broken_rules = KeysOfOtherRecipes(result.spec, result.origins);
  for (ConfigError& error : ValidateJobSpec(result.spec)) broken_rules.push_back(std::move(error));
  for (ConfigError& error : broken_rules) {
    if (!MayJudge(error, not_read)) continue;
    ConfigError placed = WithOrigin(std::move(error), result.origins);
    if (placed.source.empty()) placed.source = options.file;
    result.errors.push_back(std::move(placed));
  }
  return result;
}

absl::StatusOr<v1::JobSpec> LoadJobSpec(const LoadOptions& options) {
  LoadResult result = LoadJob(options);
  if (absl::Status status = ToStatus(result.errors); !status.ok()) return status;
  return std::move(result.spec);
}

}  // namespace sluice
