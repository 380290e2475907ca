// YAML text to a tree of maps, lists and untyped scalars. Types are not decided here: that is the key's business
// (common/config/scalar.h).
//
// Strict where silence would hide a mistake: a key given twice, a second document, a key that is not a text, a tag, a
// tab in the indentation, bytes that are not UTF-8 are errors. Aliases and merge keys (`<<: *a`, `<<: [*a, *b]`; a key
// of the map itself wins over a merged one, an earlier merged map over a later one) are resolved by copying; limits on
// bytes, nodes and depth bound the work whatever the text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/config/config_error.h"

namespace sluice {

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;                    // 1-based line where the value starts; an alias has the line of its anchor's value
  std::string text;                // kScalar
  bool plain = true;               // kScalar: written without quotes and not as a block
  std::vector<YamlNode> items;     // kList
  std::vector<YamlEntry> entries;  // kMap, in file order, merged ones last; keys are unique
};

struct YamlEntry {
  std::string key;
  int line = 0;  // of the key
  YamlNode value;
};

struct YamlLimits {
  size_t bytes = 1 << 20;
  size_t nodes = 100'000;  // after aliases are resolved
  int depth = 32;
};

// The single document of `text`: a null node for an empty one. nullopt iff errors were appended; `source` names the
// text in them. A byte-order mark and CRLF line ends are accepted.
std::optional<YamlNode> ParseYaml(const std::string& text, const std::string& source, std::vector<ConfigError>* errors,
                                  const YamlLimits& limits = {});

// "a map", "a list", "a single value", "nothing": for messages.
std::string KindName(YamlNode::Kind kind);

}  // namespace sluice
