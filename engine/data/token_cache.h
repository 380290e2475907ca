// Rows tokenised once and kept on disk: later runs, and the other ranks of a host, map the files into memory.
//
// A cache is a folder <cache_dir>/tokens/<key> of shards (token_shard.h) named shard-<number>-<hash of the file>.arrow.
// The key is a hash of everything the tokens depend on: the files' contents, the format and its columns, the encoder,
// the truncation and the version of this format; so a cache is never stale, and files may be moved or touched freely.
//
// Crashes: a shard appears by a rename and its name says what it must hold, so a shard is whole or found to be damaged
// and made again. An interrupted tokenisation goes on at the first shard that is missing.
// Several processes: one tokenises at a time (a lock on the folder; it ends with the process); the others wait and then
// find the shards. Where the file system has no locks they all tokenise, and all write the same bytes.
// Size: an Open that tokenised removes the folders that were not used for longest, until all together have at most
// max_bytes; never one that is in use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "engine/data/formats.h"
#include "engine/data/row_encoder.h"
#include "engine/data/row_source.h"
#include "engine/data/token_cache_folders.h"
#include "engine/data/token_shard.h"
#include "engine/data/truncation.h"

namespace sluice::engine {

struct TokenCacheOptions {
  std::string cache_dir;
  int64_t max_length = 1024;
  Truncation truncation = Truncation::kError;
  int threads = 1;
  int64_t max_bytes = int64_t{64} << 30;  // of the folders of all keys
  // Called with the rows done so far and all rows, from the tokenising threads, one call at a time. May be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Immutable after Open; threads may share it.
class TokenCache {
 public:
  // Finds or makes the tokens of all rows. The result does not depend on the number of threads.
  // Errors: a row's own error, with its place, of the first shard that has one ("train.jsonl:17: ...");
  // ResourceExhausted and the like where the cache cannot be written. Shards finished before an error stay. `source`,
  // `format` and `encoder` are used during the call only; `file_system` must outlive the cache.
  static absl::StatusOr<std::unique_ptr<TokenCache>> Open(const RowSource& source, const RowFormat& format,
                                                          const RowEncoder& encoder, const TokenCacheOptions& options,
                                                          FileSystem& file_system);

  // Rows kept, in the order of the data set.
  int64_t rows() const { return starts_.back(); }
  // Valid as long as the cache. sample_id is the row's number in the data set. REQUIRES: 0 <= index < rows().
  TokenSpan row(int64_t index) const;

  const TokenStats& stats() const { return stats_; }
  int64_t shards() const { return static_cast<int64_t>(shards_.size()); }
  // Of them, those tokenised by this call; the others were there.
  int64_t shards_built() const { return shards_built_; }
  const std::string& folder() const { return folder_; }

 private:
  TokenCache() = default;

  std::string folder_;
  FolderUse use_;
  std::vector<std::unique_ptr<TokenShard>> shards_;
  std::vector<int64_t> starts_ = {0};  // [shards + 1] first row of each, and the number of rows
  TokenStats stats_;
  int64_t shards_built_ = 0;
};

// `configured`, or where it is empty `sluice` below $XDG_CACHE_HOME or ~/.cache. `environment` is getenv or a fake of
// it. kInvalidArgument where neither variable is set.
absl::StatusOr<std::string> ResolveCacheDir(const std::string& configured,
                                            const std::function<const char*(const char*)>& environment);

}  // namespace sluice::engine
