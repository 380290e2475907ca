#include "common/config/file_checks.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/dataflow.h"
#include "common/config/rewards_from_spec.h"
#include "common/glob.h"

namespace sluice {
namespace {

enum class Presence { kNothing, kFile, kFolder };

class Checker {
 public:
  explicit Checker(FileSystem& file_system) : file_system_(file_system) {}

  std::vector<ConfigError> TakeErrors() { return std::move(errors_); }

  void CheckModel(const v1::ModelSpec& model);
  void CheckFurtherModel(const std::string& key, const std::string& path);
  void CheckDataFiles(const std::string& key, const google::protobuf::RepeatedPtrField<std::string>& patterns);
  void CheckRunFolder(const v1::TrainerSpec& trainer);
  void CheckResume(const v1::TrainerSpec& trainer);

 private:
  Presence Look(const std::string& path) const {
    const auto entry = file_system_.Stat(path);
    if (!entry.ok()) return Presence::kNothing;
    return entry->is_folder ? Presence::kFolder : Presence::kFile;
  }
  void Add(const std::string& key, const std::string& message) { errors_.push_back({"", 0, key, message, {}}); }

  bool CheckFolder(const std::string& key, const std::string& path) {
    const Presence presence = Look(path);
    if (presence == Presence::kNothing) Add(key, absl::StrCat(path, ": no such folder"));
    if (presence == Presence::kFile) Add(key, absl::StrCat(path, " is a file; the folder that holds it is expected"));
    return presence == Presence::kFolder;
  }

  FileSystem& file_system_;
  std::vector<ConfigError> errors_;
};

bool HasWeights(const std::vector<FolderEntry>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const FolderEntry& entry) {
    return !entry.is_folder && absl::EndsWith(entry.name, ".safetensors");
  });
}

void Checker::CheckModel(const v1::ModelSpec& model) {
  const bool folder = CheckFolder("model.path", model.path());
  const bool own_config = model.hf_config_path().empty(), own_tokenizer = model.tokenizer_path().empty();
  if (folder && own_config && Look(JoinPath(model.path(), "config.json")) != Presence::kFile) {
    Add("model.path", absl::StrCat(model.path(), " has no config.json (is it a Hugging Face folder?)"));
  }
  if (folder && own_tokenizer && Look(JoinPath(model.path(), "tokenizer.json")) != Presence::kFile) {
    Add("model.path",
        absl::StrCat(model.path(), " has no tokenizer.json; set model.tokenizer_path where it is elsewhere"));
  }
  if (folder && model.init() == "pretrained") {
    const auto entries = file_system_.ListFolder(model.path());
    if (entries.ok() && !HasWeights(*entries)) {
      Add("model.path",
          absl::StrCat(model.path(), " has no *.safetensors file; for new weights set model.init: random"));
    }
  }
  if (!own_config && CheckFolder("model.hf_config_path", model.hf_config_path()) &&
      Look(JoinPath(model.hf_config_path(), "config.json")) != Presence::kFile) {
    Add("model.hf_config_path", absl::StrCat(model.hf_config_path(), " has no config.json"));
  }
  if (!own_tokenizer && CheckFolder("model.tokenizer_path", model.tokenizer_path()) &&
      Look(JoinPath(model.tokenizer_path(), "tokenizer.json")) != Presence::kFile) {
    Add("model.tokenizer_path", absl::StrCat(model.tokenizer_path(), " has no tokenizer.json"));
  }
  const std::string& chat_template = model.custom_chat_template();
  const bool is_path = absl::StartsWith(chat_template, "/") && !absl::StrContains(chat_template, "{{") &&
                       !absl::StrContains(chat_template, "{%");
  if (is_path && Look(chat_template) != Presence::kFile) {
    Add("model.custom_chat_template",
        absl::StrCat(chat_template, ": no such file (a template itself has {{ or {% in it)"));
  }
}

void Checker::CheckFurtherModel(const std::string& key, const std::string& path) {
  if (!CheckFolder(key, path)) return;
  if (Look(JoinPath(path, "config.json")) != Presence::kFile) {
    Add(key, absl::StrCat(path, " has no config.json (is it a Hugging Face folder?)"));
  }
  const auto entries = file_system_.ListFolder(path);
  if (entries.ok() && !HasWeights(*entries)) Add(key, absl::StrCat(path, " has no *.safetensors file"));
}

void Checker::CheckDataFiles(const std::string& key, const google::protobuf::RepeatedPtrField<std::string>& patterns) {
  for (int i = 0; i < patterns.size(); ++i) {
    const std::string path = absl::StrCat(key, "[", i, "]");
    const std::vector<std::string> files = Glob(patterns[i], file_system_);
    if (files.empty()) {
      const bool folder = Look(patterns[i]) == Presence::kFolder;
      Add(path,
          folder ? absl::StrCat(patterns[i], " is a folder; write ", JoinPath(patterns[i], "*.jsonl"), " for its files")
                 : absl::StrCat(patterns[i], ": no such file"));
    }
    for (const std::string& file : files) {
      if (absl::EndsWith(file, ".jsonl") || absl::EndsWith(file, ".parquet")) continue;
      Add(path, absl::StrCat(file, ": expected a .jsonl or .parquet file"));
    }
  }
}

void Checker::CheckRunFolder(const v1::TrainerSpec& trainer) {
  const std::string& folder = trainer.default_local_dir();
  if (Look(folder) == Presence::kFile) return Add("trainer.default_local_dir", absl::StrCat(folder, " is a file"));
  if (trainer.resume_mode() != "disable") return;
  const auto entries = file_system_.ListFolder(folder);
  if (!entries.ok()) return;
  for (const FolderEntry& entry : *entries) {
    if (!entry.is_folder || !absl::StartsWith(entry.name, "global_step_")) continue;
    return Add("trainer.default_local_dir",
               absl::StrCat(folder, " holds checkpoints (", entry.name,
                            ") and trainer.resume_mode is disable; choose another "
                            "folder, remove them, or set resume_mode: auto to go on from them"));
  }
}

void Checker::CheckResume(const v1::TrainerSpec& trainer) {
  if (trainer.resume_mode() != "resume_path" || trainer.resume_from_path().empty()) return;
  CheckFolder("trainer.resume_from_path", trainer.resume_from_path());
}

}  // namespace

std::vector<ConfigError> CheckFiles(const v1::JobSpec& spec, FileSystem& file_system) {
  Checker checker(file_system);
  checker.CheckModel(spec.model());
  if (NeedsCritic(spec) && !spec.critic().path().empty())
    checker.CheckFurtherModel("critic.path", spec.critic().path());
  if (ComparesWithAnother(spec)) checker.CheckFurtherModel("reference.path", spec.reference().path());
  for (const RewardModelFolder& reward : RewardModelsOf(spec)) checker.CheckFurtherModel(reward.key, reward.path);
  checker.CheckDataFiles("data.train_files", spec.data().train_files());
  checker.CheckDataFiles("data.val_files", spec.data().val_files());
  checker.CheckRunFolder(spec.trainer());
  checker.CheckResume(spec.trainer());
  return checker.TakeErrors();
}

}  // namespace sluice
