#include "common/config/other_recipes.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/field_value.h"
#include "common/config/recipes.h"
#include "common/config/schema.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;

// The section around the key whose keys are all for the same recipes: the top one. Empty: the key is one of a section
// for all recipes.
std::string SectionOfOneKind(const Key& key) {
  const std::string top = key.path.substr(0, key.path.find_first_of(".["));
  const FieldDescriptor* field = v1::JobSpec::descriptor()->FindFieldByName(top);
  return field->options().GetExtension(v1::key).only_for().empty() ? "" : top;
}

struct Unread {
  std::vector<std::string> paths;  // in the order of the table
  std::vector<RecipeKind> only_for;
};

std::string MessageFor(const v1::JobSpec& spec, const std::string& path, const Unread& unread) {
  std::vector<std::string> below;  // the keys, as the section has them
  for (const std::string& key : unread.paths) {
    if (key != path) below.push_back(key.substr(path.size() + 1));
  }
  const bool several = below.size() > 1;
  return absl::StrCat(absl::StrJoin(below, ", "), below.empty() ? "" : " ", several ? "have" : "has",
                      " no effect with recipe ", spec.recipe(), ", which is ",
                      std::string(NameOf(KindOfRecipe(spec.recipe()))), "; ", several ? "they are" : "it is", " for ",
                      OnlyForText(unread.only_for), ": leave ", several ? "them" : "it", " out, or change the recipe");
}

}  // namespace

std::vector<ConfigError> KeysOfOtherRecipes(const v1::JobSpec& spec, const std::map<std::string, Origin>& origins) {
  if (FindRecipe(spec.recipe()) == nullptr) return {};
  const RecipeKind kind = KindOfRecipe(spec.recipe());
  std::vector<std::pair<std::string, Unread>> found;  // by the path to report
  const auto add = [&](const std::string& path, const std::string& key, const std::vector<RecipeKind>& only_for) {
    if (found.empty() || found.back().first != path) found.push_back({path, {{}, only_for}});
    found.back().second.paths.push_back(key);
  };
  for (const Section& section : Schema::Get().sections()) {
    if (section.in_list()) {
      const std::string list = section.path.substr(0, section.path.find('['));
      const Key& first = section.keys.front();
      const FieldDescriptor* field = spec.GetDescriptor()->FindFieldByName(list);
      const bool is_list = section.path == list + "[]";
      if (is_list && !first.IsFor(kind) && spec.GetReflection()->FieldSize(spec, field) > 0) {
        add(list, list, first.only_for);
      }
      continue;
    }
    for (const Key& key : section.keys) {
      if (key.IsFor(kind) || !origins.contains(key.path) || HasDefault(key, SectionOf(spec, section))) continue;
      const std::string top = SectionOfOneKind(key);
      add(top.empty() ? key.path : top, key.path, key.only_for);
    }
  }
  std::vector<ConfigError> errors;
  for (auto& [path, unread] : found) {
    if (unread.paths.size() == 1) path = unread.paths.front();
    const Origin& origin = origins.at(unread.paths.front());
    errors.push_back({origin.source, origin.line, path, MessageFor(spec, path, unread), {}});
  }
  return errors;
}

}  // namespace sluice
