// The table of configuration keys, read from the fields of sluice.v1.JobSpec: their types, their KeyOptions and their
// comments. Reading YAML, validation, `sluice config` and docs/config.md all walk this one table.
//
// Immutable after its construction on first use; may be used from any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

#include "common/config/recipes.h"
#include "sluice/v1/config_options.pb.h"
#include "sluice/v1/job.pb.h"

namespace sluice {

struct Key {
  enum class Type { kText, kInteger, kNumber, kTruth, kTextList, kNumberList, kMap };

  std::string path;  // "optim.lr"
  std::string name;  // "lr"
  Type type = Type::kText;
  v1::KeyOptions options;  // default_value, required, choices, bounds, aliases, ...
  std::string doc;         // the field's comment, as one paragraph
  const google::protobuf::FieldDescriptor* field = nullptr;
  std::vector<RecipeKind> only_for;  // the key's option, or its section's; empty: for all recipes

  bool IsFor(RecipeKind kind) const;

  // May be unset (YAML null), which differs from every value.
  bool nullable() const { return field->has_optional_keyword(); }
};

// A section that is a list of maps has a path that ends in []: "dataflow[]". Paths of what lies below begin with that.
struct Section {
  std::string path;  // "optim", "algorithm.kl_ctrl", "dataflow[]"; "" for the top level
  std::string doc;
  const google::protobuf::Descriptor* message = nullptr;
  std::vector<Key> keys;  // in the order of job.proto, without sections

  // A list of maps, or inside of one: there is a message for each element, and SectionOf does not know it.
  bool in_list() const { return path.find("[]") != std::string::npos; }
};

class Schema {
 public:
  static const Schema& Get();

  // The top level first, then its sections in the order of job.proto, each followed by those inside of it.
  const std::vector<Section>& sections() const { return sections_; }

  // The key with this full path ("optim.lr"; aliases are not looked at), or nullptr.
  const Key* Find(const std::string& path) const;
  // The key of this field, or nullptr for a section's field. Where several sections are of one message: the first's.
  const Key* Find(const google::protobuf::FieldDescriptor* field) const;

  // The field that a YAML key means inside `message`: by its name or one of its aliases; nullptr: unknown.
  const google::protobuf::FieldDescriptor* FieldNamed(const google::protobuf::Descriptor* message,
                                                      const std::string& name) const;

  // What to write in place of an unknown key at `parent_path` ("" for the top level): " (did you mean ...?)",
  // " (it belongs under optim.)", or "".
  std::string Suggestion(const std::string& parent_path, const std::string& name) const;

 private:
  Schema();
  void AddSections(const std::string& path, const google::protobuf::Descriptor* message,
                   const std::vector<RecipeKind>& only_for, const std::map<std::string, std::string>& comments);

  std::vector<Section> sections_;
  std::map<std::string, const Key*> by_path_;
  std::map<const google::protobuf::FieldDescriptor*, const Key*> by_field_;
};

// The part of `spec` that holds the keys of `section`; an empty message where it was never set. REQUIRES: it is not in
// a list.
const google::protobuf::Message& SectionOf(const v1::JobSpec& spec, const Section& section);

// How a section is written in YAML: its own name ("kl_ctrl"), and the spaces before its keys. REQUIRES: as SectionOf.
std::string SectionName(const Section& section);
std::string SectionIndent(const Section& section);

// Whether the field is a section of the file: a message of our own, not a free-form map.
bool IsSection(const google::protobuf::FieldDescriptor* field);

// "dataflow[3].stage" -> "dataflow[].stage", as the table has it.
std::string WithoutNumbers(const std::string& path);

// "text", "path", "whole number", "list of texts", ...: for people.
std::string TypeName(const Key& key);

// "at least 0, below 1", "one of: a, b", both, or "".
std::string RulesText(const Key& key);

// "reinforcement learning", "preference tuning", two of these with "and", or "" where they are for all recipes.
std::string OnlyForText(const std::vector<RecipeKind>& only_for);

// "is required: " and the first sentence of what the key means.
std::string RequiredMessage(const Key& key);

}  // namespace sluice
