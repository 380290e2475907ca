// One value of a job file into one field of the JobSpec message.
#pragma once

#include <string>

#include <google/protobuf/message.h>
#include <google/protobuf/struct.pb.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/expand.h"
#include "common/config/schema.h"
#include "common/config/yaml_document.h"

namespace sluice {

struct ExpandOptions {
  EnvLookup env;
  std::string working_folder;
};

// Where a value was refused: `element` is -1, or the index in the list.
struct ValueError {
  int element = -1;
  int line = 0;
  std::string message;
};

// Sets key.field of `section` from `node`, whose kind must suit the key. Returns every problem of the value; the field
// is unspecified then. REQUIRES: node is not null.
std::vector<ValueError> SetField(const Key& key, const YamlNode& node, const ExpandOptions& expand,
                                 google::protobuf::Message* section);

// The same from YAML text, as defaults are written: nothing is the empty text.
std::vector<ValueError> SetFieldFromText(const Key& key, const std::string& text, const ExpandOptions& expand,
                                         google::protobuf::Message* section);

// The key's default, or nothing where it has none.
void SetDefault(const Key& key, const ExpandOptions& expand, google::protobuf::Message* section);

// Whether the field is what reading this text makes of it; the key's default, or nothing where it has none.
bool HasValue(const Key& key, const std::string& text, const google::protobuf::Message& section);
bool HasDefault(const Key& key, const google::protobuf::Message& section);

// A null after expansion: `~`, `null` or nothing, written without quotes (also through `${NAME,null}`).
bool IsNull(const YamlNode& node, const EnvLookup& env);

// A free-form value by YAML 1.2's core rules: null, true/false, numbers, else text. InvalidArgument: a number that a
// double cannot hold exactly, or a bad environment reference.
absl::StatusOr<google::protobuf::Value> FreeFormValue(const YamlNode& node, const EnvLookup& env);

}  // namespace sluice
