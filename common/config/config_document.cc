#include "common/config/config_document.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/config/recipes.h"
#include "common/config/schema.h"
#include "common/config/yaml_writer.h"
#include "common/reward_kinds.h"

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
  if (!key.only_for.empty()) parts.push_back(OnlyForText(key.only_for));
  return absl::StrJoin(parts, "; ");
}

std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string MarkdownRow(const Key& key) {
  const std::string written = DefaultYaml(key);
  const std::string shown = key.options.required() ? "required" : absl::StrCat("`", written, "`");
  std::string meaning = key.doc;
  // A section that is all about it says so itself.
  const std::string recipes = key.options.only_for().empty() ? "" : absl::StrCat(OnlyForText(key.only_for), " only");
  for (std::string note : {RulesText(key), Aliases(key), recipes}) {
    if (note.empty()) continue;
    note[0] = absl::ascii_toupper(static_cast<unsigned char>(note[0]));
    absl::StrAppend(&meaning, " *", note, ".*");
  }
  const std::string type = absl::StrCat(TypeName(key), key.nullable() ? " or null" : "");
  return absl::StrCat("| `", key.path, "` | ", type, " | ", Cell(shown), " | ", Cell(meaning), " |\n");
}

// Of a list of maps, which is empty: its elements' keys as comments.
std::string ListText(const Section& section) {
  std::string out;
  const std::string name = section.path.substr(0, section.path.find("[]"));
  if (section.path == name + "[]") {
    absl::StrAppend(&out, "\n", Comment(absl::StrCat("A list: ", section.doc), ""), name, ": []\n");
  }
  for (const Key& key : section.keys) {
    absl::StrAppend(&out, Comment(absl::StrCat(key.path, " [", Rules(key), "]: ", key.doc), "  "));
  }
  return out;
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
- **For the recipe.** Keys say for which recipes they are. One that is for others alone, such as `rollout.n` under recipe
  sft, is an error, for it would have no effect; its default may be given. Values that another key leaves without effect,
  such as `actor.tau_pos` where the loss is not sapo, are named by `sluice plan`.
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

constexpr char kRewardsIntroduction[] = R"(# Rewards

What an answer is worth. This page is generated from the table in `common/reward_kinds.cc`, and a test keeps it equal;
`sluice config --rewards > docs/rewards.md` writes it anew.

```yaml
reward: {kind: auto}                                  # by the row's data source (column data.reward_fn_key)
reward: {kind: gsm8k, options: {method: flexible}}    # one of those below, with options
reward:                                               # several, added up: weight * score
  terms:
    answer: {kind: gsm8k}
    form: {kind: format, weight: 0.2, mode: search, pattern: '####'}
    liked: {kind: model, weight: 0.5, path: /models/reward}
reward:                                               # your own Python
  custom_reward_function: {path: my_reward.py, name: compute_score, reward_kwargs: {strict: true}}
```

```python
# my_reward.py
def compute_score(data_source, solution_str, ground_truth, extra_info, **kwargs):
    right = solution_str.strip().endswith(ground_truth)
    return {"score": float(right), "length": len(solution_str)}   # or a number; further keys become metrics
```

The file is imported once by each process of a supervised pool (`custom_reward_function.num_workers` on each rank).

## What goes wrong

An answer without a score is an error with a kind: `timeout`, `crashed`, `raised`, `bad_value` (NaN, infinite, no number) or
`unavailable`. It is counted in the metric `reward/errors/<kind>`, the log has the first message of a step, and the answer
is left out of its group's statistics and of the loss. It never counts as 0. A process that hangs or dies is killed with
all it started, and replaced. A file that cannot be imported, a pattern that does not compile, and a data source that no
rule knows end the job before the model is loaded, with exit code 2.

The metrics of a term are `reward/<term>/...`, its score before the weight is `reward/<term>/score`.

## The rewards

)";

}  // namespace

std::string DefaultsText() {
  std::string out = "# Every key with its default. Required keys are empty. docs/config.md has the same as a page.\n";
  for (const Section& section : Schema::Get().sections()) {
    if (section.in_list()) {
      absl::StrAppend(&out, ListText(section));
      continue;
    }
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
    const std::string title = section.path.empty() ? "Top level"
                                                   : absl::StrCat("`", section.path, "`",
                                                                  absl::EndsWith(section.path, "[]") ? ", a list" : "");
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

std::string RewardsMarkdown() {
  const std::string page = kRewardsIntroduction + RewardKindsMarkdown();
  return page.substr(0, page.find_last_not_of('\n') + 1) + "\n";
}

}  // namespace sluice
