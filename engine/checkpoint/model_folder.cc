#include "engine/checkpoint/model_folder.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/model_folder_names.h"
#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

bool Holds(const std::vector<FolderEntry>& entries, const std::string& name) {
  return std::any_of(entries.begin(), entries.end(), [&](const FolderEntry& entry) { return entry.name == name; });
}

// What the folder holds instead of weights that we read, or "".
std::string OtherWeights(const std::vector<FolderEntry>& entries) {
  std::vector<std::string> names;
  for (const FolderEntry& entry : entries) {
    for (const char* ending : {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5"}) {
      if (absl::EndsWith(entry.name, ending)) names.push_back(entry.name);
    }
  }
  if (names.size() > 4) names.resize(4);
  return names.empty() ? "" : absl::StrCat(" (it holds ", absl::StrJoin(names, ", "), ")");
}

// A few names of the folder that end like the wanted one, for the message.
std::string SimilarNames(const std::map<std::string, SafetensorsFile>& files, const std::string& wanted) {
  const size_t dot = wanted.rfind('.', wanted.rfind('.') - 1);
  const std::string ending = dot == std::string::npos ? wanted : wanted.substr(dot);  // ".up_proj.weight"
  std::vector<std::string> similar;
  for (const auto& [name, file] : files) {
    if (similar.size() < 3 && absl::EndsWith(name, ending)) similar.push_back(name);
  }
  return similar.empty() ? "" : absl::StrCat(" (it holds for example ", absl::StrJoin(similar, ", "), ")");
}

// tensor → shard, as the index says. Only names of files in the same folder are allowed: the index comes with a
// download.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const std::string& text, const std::string& path) {
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseJsonObject(text, path));
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no object \"weight_map\""));
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : found->items()) {
    if (!shard.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": the shard of ", tensor, " is not a text"));
    }
    const std::string name = shard.get<std::string>();
    if (name.empty() || name.find_first_of("/\\") != std::string::npos || name[0] == '.') {
      return absl::InvalidArgumentError(absl::StrCat(path, ": the shard of ", tensor, " is \"", name,
                                                     "\", expected the name of a file in the same folder"));
    }
    weight_map[tensor] = name;
  }
  if (weight_map.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": \"weight_map\" is empty"));
  return weight_map;
}

}  // namespace

absl::StatusOr<ModelFolder> ModelFolder::Open(FileSystem& file_system, const std::string& path) {
  absl::StatusOr<std::vector<FolderEntry>> listed = file_system.ListFolder(path);
  if (absl::IsNotFound(listed.status())) return absl::NotFoundError(absl::StrCat(path, ": there is no such folder"));
  RETURN_IF_ERROR(listed.status());
  const std::vector<FolderEntry>& entries = *listed;
  if (!Holds(entries, kConfigName)) {
    return absl::NotFoundError(absl::StrCat(path, " has no config.json (is it a Hugging Face model folder?)"));
  }
  ModelFolder folder;
  folder.path_ = path;
  const std::string config_path = JoinPath(path, kConfigName);
  ASSIGN_OR_RETURN(folder.config_json_, file_system.ReadFile(config_path));
  RETURN_IF_ERROR(ParseJsonObject(folder.config_json_, config_path));

  if (Holds(entries, kIndexName)) {
    RETURN_IF_ERROR(folder.OpenShards(file_system, entries));
    if (Holds(entries, kSingleFileName)) {
      folder.notes_.push_back(
          absl::StrCat(path, ": ", kSingleFileName, " is ignored, ", kIndexName, " names the shards"));
    }
  } else if (Holds(entries, kSingleFileName)) {
    RETURN_IF_ERROR(folder.OpenSingleFile(file_system));
  } else {
    return absl::NotFoundError(
        absl::StrCat(path, " has neither ", kSingleFileName, " nor ", kIndexName, OtherWeights(entries)));
  }
  return folder;
}

absl::Status ModelFolder::OpenSingleFile(FileSystem& file_system) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(file_system, JoinPath(path_, kSingleFileName)));
  for (const TensorData& tensor : file.Tensors()) files_.emplace(tensor.spec.name, file);
  return absl::OkStatus();
}

absl::Status ModelFolder::OpenShards(FileSystem& file_system, const std::vector<FolderEntry>& entries) {
  const std::string index_path = JoinPath(path_, kIndexName);
  ASSIGN_OR_RETURN(const std::string text, file_system.ReadFile(index_path));
  using WeightMap = std::map<std::string, std::string>;
  ASSIGN_OR_RETURN(const WeightMap weight_map, ReadWeightMap(text, index_path));

  // All names first: a missing shard is told before minutes are spent on the others.
  std::set<std::string> shard_names, missing;
  for (const auto& [tensor, shard] : weight_map) {
    shard_names.insert(shard);
    if (!Holds(entries, shard)) missing.insert(shard);
  }
  if (!missing.empty()) {
    return absl::NotFoundError(absl::StrCat(path_, ": ", absl::StrJoin(missing, ", "),
                                            missing.size() == 1 ? " is" : " are", " missing, ", kIndexName, " names ",
                                            shard_names.size(), " shards (was the download complete?)"));
  }

  std::map<std::string, SafetensorsFile> shards;
  std::vector<std::string> unnamed;  // in a shard, but not in the index
  for (const std::string& name : shard_names) {
    ASSIGN_OR_RETURN(SafetensorsFile shard, SafetensorsFile::Open(file_system, JoinPath(path_, name)));
    for (const TensorData& tensor : shard.Tensors()) {
      const auto named = weight_map.find(tensor.spec.name);
      if (named == weight_map.end() || named->second != name)
        unnamed.push_back(absl::StrCat(tensor.spec.name, " of ", name));
    }
    shards.emplace(name, std::move(shard));
  }
  for (const auto& [tensor, name] : weight_map) {
    const SafetensorsFile& shard = shards.at(name);
    if (!shard.Contains(tensor)) {
      const auto other =
          std::find_if(shards.begin(), shards.end(), [&](const auto& s) { return s.second.Contains(tensor); });
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": ", kIndexName, " puts ", tensor, " into ", name, ", which does not hold it",
                       other == shards.end() ? "" : absl::StrCat(" (", other->first, " does)")));
    }
    files_.emplace(tensor, shard);
  }
  if (!unnamed.empty()) {
    const size_t count = unnamed.size();
    if (count > 3) unnamed.resize(3);
    notes_.push_back(absl::StrCat(path_, ": ", count, " tensors of the shards are ignored, ", kIndexName,
                                  " does not put them there: ", absl::StrJoin(unnamed, ", "),
                                  count > 3 ? ", ..." : ""));
  }
  return absl::OkStatus();
}

std::vector<std::string> ModelFolder::TensorNames() const { return NamesNotIn({}); }

std::vector<std::string> ModelFolder::NamesNotIn(const std::set<std::string>& used) const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) {
    if (!used.contains(name)) names.push_back(name);
  }
  return names;
}

absl::StatusOr<TensorData> ModelFolder::Tensor(const std::string& name) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    return absl::NotFoundError(absl::StrCat(path_, ": holds no tensor ", name, SimilarNames(files_, name)));
  }
  return found->second.Tensor(name);
}

absl::StatusOr<TensorData> ModelFolder::Tensor(const std::string& name, const std::vector<int64_t>& shape) const {
  ASSIGN_OR_RETURN(TensorData tensor, Tensor(name));
  if (tensor.spec.shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", name, " is ", ShapeText(tensor.spec.shape),
                                                   ", config.json needs ", ShapeText(shape)));
  }
  return tensor;
}

}  // namespace sluice::engine
