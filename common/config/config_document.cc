#include "common/config/config_document.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/config/recipes.h"
#include "common/config/schema.h"
#include "common/config/yaml_writer.h"

namespace sluice {
namespace {

constexpr size_t kColumns = 118;

// `text` as comment lines of at most kColumns columns.
std::string Comment(const std::string& text, const std::string& indent) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  std::string out, line;
  const auto flush = [&] {
    if (!line.empty()) absl::StrAppend(&out, indent, "#", line, "\n");
    line.clear();
  };
  for (const std::string& word : words) {
    if (indent.size() + 1 + line.size() + 1 + word.size() > kColumns) flush();
    absl::StrAppend(&line, " ", word);
  }
  flush();
  return out;
}

// The default as it stands in a YAML file.
std::string DefaultYaml(const Key& key) {
  if (key.options.required()) return "";
  if (key.type == Key::Type::kMap) return "{}";
  if (!key.options.has_default_value()) return "null";
  return key.type == Key::Type::kText ? YamlText(key.options.default_value()) : key.options.default_value();
}

std::string Aliases(const Key& key) {
  if (key.options.aliases().empty()) return "";
  return absl::StrCat("also written ", absl::StrJoin(key.options.aliases(), ", "));
}

std::string Rules(const Key& key) {
  std::vector<std::string> parts = {TypeName(key)};
  if (key.nullable()) parts[0] += " or null";
  if (key.options.scalar_as_list()) parts[0] += " (or one text)";
  for (const std::string& part : {RulesText(key), Aliases(key)}) {
    if (!part.empty()) parts.push_back(part);
  }
  if (key.options.required()) parts.push_back("required");
  if (key.policy) parts.push_back("reinforcement learning");
  return absl::StrJoin(parts, "; ");
}

std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string MarkdownRow(const Key& key) {
  const std::string written = DefaultYaml(key);
  const std::string shown = key.options.required() ? "required" : absl::StrCat("`", written, "`");
  std::string meaning = key.doc;
  // A section that is all about it says so itself.
  const std::string recipes = key.options.policy() ? "reinforcement learning only" : "";
  for (std::string note : {RulesText(key), Aliases(key), recipes}) {
    if (note.empty()) continue;
    note[0] = absl::ascii_toupper(static_cast<unsigned char>(note[0]));
    absl::StrAppend(&meaning, " *", note, ".*");
  }
  const std::string type = absl::StrCat(TypeName(key), key.nullable() ? " or null" : "");
  return absl::StrCat("| `", key.path, "` | ", type, " | ", Cell(shown), " | ", Cell(meaning), " |\n");
}

constexpr char kIntroduction[] = R"(# Configuration

A job is one YAML file. This page lists every key; it is generated from the comments and options in
`proto/sluice/v1/job.proto`, and a test keeps it equal to them. `sluice config --markdown > docs/config.md` writes it
anew; `sluice config --defaults` prints the same as a commented YAML file.

## How a file is read

- **By the type of the key.** `1e-5` is a number and `on` is true where the key wants one; for a text key they are
  text. Whole numbers are decimal digits; there are no other bases and no separators.
- **Strictly.** An unknown key, a key given twice, a second document, a value out of its bounds are errors. All errors
  are shown at once, each with file, line and path:
  `job.yaml:4: optim.weigth_decay: unknown key (did you mean weight_decay?)`. The exit code is 2 and nothing was
  started.
- **Null means default.** `key: null`, `key: ~` and `key:` are the same as leaving the key out.
- **Overrides** `key=value` after the file win over it:
  `sluice run job.yaml optim.lr=3e-4 'data.train_files=[a.jsonl, b.jsonl]'`. The key is the dotted path, the value is
  YAML. `'optim.betas=[0.9, 0.95]'` replaces the list, `'optim={lr: 1e-4}'` the whole section.
- **Environment.** `${NAME}` and `${NAME,default}` inside a value, in the file or in an override, are replaced before
  the value is read. A name that is not set and has no default is an error. `$${` stands for the characters `${`.
- **Paths** may begin with `~/`; relative ones are taken from the folder in which the command runs.
- **Anchors and merge keys** (`&a`, `*a`, `<<: *a`) work. A top-level key that begins with `x-` is ignored, so that
  shared parts have a place: `x-adam: &adam {lr: 1e-4}`.
)";

}  // namespace

std::string DefaultsText() {
  std::string out = "# Every key with its default. Required keys are empty. docs/config.md has the same as a page.\n";
  for (const Section& section : Schema::Get().sections()) {
    const std::string indent = SectionIndent(section);
    if (!section.path.empty()) {
      const std::string outer = indent.substr(2);
      absl::StrAppend(&out, "\n", Comment(section.doc, outer), outer, SectionName(section), ":\n");
    }
    for (const Key& key : section.keys) {
      const std::string value = DefaultYaml(key);
      absl::StrAppend(&out, Comment(key.doc, indent), Comment(absl::StrCat("[", Rules(key), "]"), indent), indent,
                      key.name, ":", value.empty() ? "" : " ", value, "\n");
    }
  }
  return out;
}

std::string ConfigMarkdown() {
  std::string out = kIntroduction;
  for (const Section& section : Schema::Get().sections()) {
    const std::string title = section.path.empty() ? "Top level" : absl::StrCat("`", section.path, "`");
    absl::StrAppend(&out, "\n## ", title, "\n\n", section.path.empty() ? "" : absl::StrCat(section.doc, "\n\n"),
                    "| key | type | default | meaning |\n|---|---|---|---|\n");
    for (const Key& key : section.keys) out += MarkdownRow(key);
  }
  absl::StrAppend(&out, "\n## Recipes\n\nA recipe changes defaults; a key that is given wins.\n\n",
                  "| recipe | what it does | defaults |\n|---|---|---|\n");
  for (const Recipe& recipe : Recipes()) {
    const std::string defaults =
        absl::StrJoin(recipe.defaults, ", ", [](std::string* text, const RecipeDefault& value) {
          absl::StrAppend(text, "`", value.key, ": ", value.value, "`");
        });
    absl::StrAppend(&out, "| `", recipe.name, "` | ", Cell(recipe.doc), " | ", Cell(defaults), " |\n");
  }
  return out;
}

}  // namespace sluice
