// Writes a model folder in Hugging Face's layout, so that `transformers` and vLLM load it: the same file names,
// sharding and index as `save_pretrained` of transformers 5 (tensors sorted by name fill shards up to a size; a larger
// tensor gets a shard of its own).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/file_system.h"
#include "engine/checkpoint/safetensors_writer.h"
#include "engine/checkpoint/tensor_data.h"

namespace sluice::engine {

struct ModelFolderOptions {
  // Largest size of the tensors' bytes in one shard; transformers 5 uses 50 GB. At least 1.
  int64_t max_shard_bytes = 50'000'000'000;

  // Where tokenizer files, chat template and generation_config.json are copied from, those that are there; "" =
  // nowhere.
  std::string companions_from;

  // Whether a folder of this name may be there: it is replaced whole, once the new one is complete. Otherwise
  // AlreadyExists, before anything is written. An empty folder may always be replaced.
  bool replace = false;
};

// Which tensors go into which shard, by index into `specs` (whose order counts). The rule of huggingface_hub:
// a tensor above the limit has a shard of its own, before the one being filled. Pure. At least one shard.
std::vector<std::vector<size_t>> SplitIntoShards(const std::vector<TensorSpec>& specs, int64_t max_shard_bytes);

// "model-00002-of-00003.safetensors"; "model.safetensors" when count is 1. `index` from 0.
std::string ShardName(size_t index, size_t count);

// Writes the folder `path` with `config_json` and the tensors, whose bytes `source` gives in an order that is a pure
// function of the specs. The folder appears under its name whole or not at all, also through a crash: it is written as
// "<parent>/.<name>.incomplete", synced and renamed; a leftover of that name from a crashed run is removed first. So at
// most one process may write one path at a time. Replacing swaps both names atomically; where the file system cannot
// swap, a crash may leave the old folder as ".<name>.replaced".
// After an error only the former folder is there; if its removal is what failed, the new one and, as
// ".<name>.incomplete", the former. AlreadyExists: see options. InvalidArgument: no tensors, names given twice,
// config_json is not an object. ResourceExhausted: disk full; the other errors of the file system and of `source`.
absl::Status WriteModelFolder(FileSystem& file_system, const std::string& path, const std::string& config_json,
                              std::vector<TensorSpec> specs, const TensorSource& source,
                              const ModelFolderOptions& options);

}  // namespace sluice::engine
