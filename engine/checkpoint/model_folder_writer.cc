#include "engine/checkpoint/model_folder_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/checkpoint/model_folder_names.h"
#include "engine/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace sluice::engine {
namespace {

// What transformers writes and wants to see in every file.
const std::map<std::string, std::string>& ShardMetadata() {
  static const auto& metadata = *new std::map<std::string, std::string>{{"format", "pt"}};
  return metadata;
}

absl::Status WriteShards(FileSystem& file_system, const std::string& folder, const std::vector<TensorSpec>& specs,
                         const TensorSource& source, int64_t max_shard_bytes) {
  const std::vector<std::vector<size_t>> shards = SplitIntoShards(specs, max_shard_bytes);
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total_bytes = 0;
  int64_t total_parameters = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = ShardName(i, shards.size());
    std::vector<TensorSpec> shard;
    for (const size_t index : shards[i]) {
      shard.push_back(specs[index]);
      weight_map[specs[index].name] = name;
      total_bytes += *ByteCount(specs[index]);
      total_parameters += *ElementCount(specs[index].shape);
    }
    RETURN_IF_ERROR(WriteSafetensors(file_system, JoinPath(folder, name), std::move(shard), source, ShardMetadata()));
  }
  if (shards.size() == 1) return absl::OkStatus();
  const nlohmann::json index = {{"metadata", {{"total_parameters", total_parameters}, {"total_size", total_bytes}}},
                                {"weight_map", std::move(weight_map)}};
  ASSIGN_OR_RETURN(const std::string text, DumpJson(index, 2, kIndexName));
  return WriteFileAtomically(file_system, JoinPath(folder, kIndexName), text + "\n");
}

absl::Status CopyCompanions(FileSystem& file_system, const std::string& from, const std::string& to) {
  for (const char* name : kCompanionNames) {
    const absl::StatusOr<std::string> contents = file_system.ReadFile(JoinPath(from, name));
    if (absl::IsNotFound(contents.status())) continue;
    RETURN_IF_ERROR(contents.status());
    RETURN_IF_ERROR(WriteFileAtomically(file_system, JoinPath(to, name), *contents));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> IsTaken(FileSystem& file_system, const std::string& path) {
  const absl::StatusOr<FolderEntry> found = file_system.Stat(path);
  if (absl::IsNotFound(found.status())) return false;
  RETURN_IF_ERROR(found.status());
  if (!found->is_folder) return absl::AlreadyExistsError(absl::StrCat(path, ": is a file"));
  ASSIGN_OR_RETURN(const std::vector<FolderEntry> entries, file_system.ListFolder(path));
  return !entries.empty();
}

// Gives the complete folder its name. From the swap on, the name `complete` stands for the former folder, which may go
// only once the swap is durable; so it is left where it is when that fails.
absl::Status Install(FileSystem& file_system, const std::string& complete, const std::string& path, bool taken,
                     bool* swapped) {
  const SplitPathResult split = SplitPath(path);
  if (!taken) {
    RETURN_IF_ERROR(file_system.Rename(complete, path));
    return file_system.SyncFolder(split.folder);
  }
  const absl::Status exchanged = file_system.Exchange(complete, path);
  if (exchanged.ok()) {
    *swapped = true;
    RETURN_IF_ERROR(file_system.SyncFolder(split.folder));
    return file_system.RemoveFolder(complete);
  }
  if (!absl::IsUnimplemented(exchanged)) return exchanged;
  const std::string aside = JoinPath(split.folder, absl::StrCat(".", split.name, ".replaced"));
  RETURN_IF_ERROR(file_system.RemoveFolder(aside));
  RETURN_IF_ERROR(file_system.Rename(path, aside));
  if (absl::Status renamed = file_system.Rename(complete, path); !renamed.ok()) {
    file_system.Rename(aside, path).IgnoreError();
    return renamed;
  }
  RETURN_IF_ERROR(file_system.SyncFolder(split.folder));
  return file_system.RemoveFolder(aside);
}

}  // namespace

std::vector<std::vector<size_t>> SplitIntoShards(const std::vector<TensorSpec>& specs, int64_t max_shard_bytes) {
  std::vector<std::vector<size_t>> shards;
  std::vector<size_t> current;
  int64_t current_bytes = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const int64_t bytes = ByteCount(specs[i]).value_or(0);
    if (bytes > max_shard_bytes) {
      shards.push_back({i});
      continue;
    }
    if (current_bytes + bytes > max_shard_bytes) {
      shards.push_back(std::exchange(current, {}));
      current_bytes = 0;
    }
    current.push_back(i);
    current_bytes += bytes;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

std::string ShardName(size_t index, size_t count) {
  return count == 1 ? std::string(kSingleFileName)
                    : absl::StrFormat("model-%05d-of-%05d.safetensors", index + 1, count);
}

absl::Status WriteModelFolder(FileSystem& file_system, const std::string& path, const std::string& config_json,
                              std::vector<TensorSpec> specs, const TensorSource& source,
                              const ModelFolderOptions& options) {
  if (specs.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": a model without tensors"));
  RETURN_IF_ERROR(ParseJsonObject(config_json, JoinPath(path, kConfigName)));
  // All names and shapes at once: a name may not be in two shards.
  if (absl::Status placed = PlaceTensors(specs).status(); !placed.ok()) return Annotate(placed, path);
  std::sort(specs.begin(), specs.end(), [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
  ASSIGN_OR_RETURN(const bool taken, IsTaken(file_system, path));
  if (taken && !options.replace) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, ": is there already and not empty (choose another name or remove it)"));
  }

  const SplitPathResult split = SplitPath(path);
  RETURN_IF_ERROR(CreateFolderWithParents(file_system, split.folder));
  const std::string incomplete = JoinPath(split.folder, absl::StrCat(".", split.name, ".incomplete"));
  RETURN_IF_ERROR(file_system.RemoveFolder(incomplete));
  bool swapped = false;
  const absl::Status written = [&]() -> absl::Status {
    RETURN_IF_ERROR(file_system.CreateFolder(incomplete));
    RETURN_IF_ERROR(WriteShards(file_system, incomplete, specs, source, options.max_shard_bytes));
    if (!options.companions_from.empty()) {
      RETURN_IF_ERROR(CopyCompanions(file_system, options.companions_from, incomplete));
    }
    RETURN_IF_ERROR(WriteFileAtomically(file_system, JoinPath(incomplete, kConfigName), config_json));
    return Install(file_system, incomplete, path, taken, &swapped);
  }();
  if (!written.ok() && !swapped)
    file_system.RemoveFolder(incomplete).IgnoreError();  // the space is wanted back; the first error counts
  return written;
}

}  // namespace sluice::engine
