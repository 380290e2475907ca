// A model folder in Hugging Face's layout, opened for reading: config.json, and the tensors of model.safetensors or of
// the shards that model.safetensors.index.json names (docs/checkpoint-format.md).
//
//   ASSIGN_OR_RETURN(const ModelFolder model, ModelFolder::Open(PosixFileSystem(), "/models/smollm2"));
//   ASSIGN_OR_RETURN(const TensorData k, model.Tensor("model.layers.0.self_attn.k_proj.weight", {192, 576}));
//
// A folder opens whole or not at all: every shard is there, well-formed, and holds what the index says. Nothing is ever
// filled in: a tensor that is not there is an error for whoever asks for it. Views live as long as a copy of the
// ModelFolder. Thread-safe after opening.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "engine/checkpoint/safetensors_file.h"
#include "engine/checkpoint/tensor_data.h"

namespace sluice::engine {

class ModelFolder {
 public:
  // NotFound: no such folder, no config.json, no weights (a hint names other formats that are there), or a shard
  // missing. InvalidArgument: config.json or the index is not a JSON object; a shard is malformed or truncated; the
  // index names a shard by a path, or puts a tensor into a shard that does not hold it. Every message names folder and
  // file.
  static absl::StatusOr<ModelFolder> Open(FileSystem& file_system, const std::string& path);

  const std::string& path() const { return path_; }

  // The text of config.json; it is one JSON object.
  const std::string& config_json() const { return config_json_; }

  // Names of all tensors, sorted.
  std::vector<std::string> TensorNames() const;
  bool Contains(const std::string& name) const { return files_.contains(name); }

  // NotFound: the folder holds no tensor of this name. The message names both and similar names that are there.
  absl::StatusOr<TensorData> Tensor(const std::string& name) const;

  // The same, with the shape the configuration needs. InvalidArgument: "<folder>: <name> is [16, 16], config.json needs
  // [8, 16]".
  absl::StatusOr<TensorData> Tensor(const std::string& name, const std::vector<int64_t>& shape) const;

  // Names that are in the folder and not among `used`, sorted: to be reported once by whoever builds the model.
  std::vector<std::string> NamesNotIn(const std::set<std::string>& used) const;

  // Oddities that do not stop the loading, each one sentence for the user's eyes: files and tensors that are ignored.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  ModelFolder() = default;
  absl::Status OpenSingleFile(FileSystem& file_system);
  absl::Status OpenShards(FileSystem& file_system, const std::vector<FolderEntry>& entries);

  std::string path_;
  std::string config_json_;
  std::map<std::string, SafetensorsFile> files_;  // tensor → the file that holds it; copies share one mapping
  std::vector<std::string> notes_;
};

}  // namespace sluice::engine
