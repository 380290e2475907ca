#include "engine/data/token_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_macros.h"
#include "engine/data/content_hash.h"

namespace sluice::engine {
namespace {

// Part of every key: raise it whenever the same input would now give other tokens or another file.
constexpr std::string_view kFormatVersion = "sluice tokens 1";

constexpr std::string_view kShardPrefix = "shard-";
constexpr std::string_view kShardSuffix = ".arrow";
constexpr std::string_view kTemporaryPrefix = "tmp-";

// Enough shards to keep many threads busy and to lose little work in a crash, not so many that opening them takes long.
int64_t RowsPerShard(int64_t rows) { return std::clamp<int64_t>(rows / 64, 256, 8192); }

std::string CacheKey(const RowSource& source, const RowFormat& format, const RowEncoder& encoder,
                     const TokenCacheOptions& options) {
  ContentHasher hasher;
  hasher.AddField(kFormatVersion);
  hasher.AddField(source.ContentHash());
  hasher.AddField(format.Fingerprint());
  hasher.AddField(encoder.Fingerprint());
  hasher.AddField(std::to_string(options.max_length));
  hasher.AddField(std::to_string(static_cast<int>(options.truncation)));
  return hasher.Hex();
}

std::string ShardName(int64_t number, const std::string& hash) {
  char digits[24];
  std::snprintf(digits, sizeof(digits), "%06lld", static_cast<long long>(number));
  return absl::StrCat(std::string(kShardPrefix), digits, "-", hash, std::string(kShardSuffix));
}

struct NamedShard {
  int64_t number;
  std::string hash;
};

std::optional<NamedShard> ParseShardName(std::string_view name) {
  if (!name.starts_with(kShardPrefix) || !name.ends_with(kShardSuffix)) return std::nullopt;
  name.remove_prefix(kShardPrefix.size());
  name.remove_suffix(kShardSuffix.size());
  const size_t dash = name.find('-');
  NamedShard shard;
  const auto [end, error] = std::from_chars(name.data(), name.data() + std::min(dash, name.size()), shard.number);
  if (error != std::errc() || dash == std::string_view::npos || end != name.data() + dash) return std::nullopt;
  shard.hash = std::string(name.substr(dash + 1));
  return shard;
}

// Holds the folder's lock for its lifetime, if there is one to hold.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder) {
    descriptor_ = open(JoinPath(folder, "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) return;
    int result;
    do {
      result = flock(descriptor_, LOCK_EX);
    } while (result != 0 && errno == EINTR);
    held_ = result == 0;
  }
  ~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool held() const { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = false;
};

using Shards = std::vector<std::unique_ptr<TokenShard>>;

// The folder's shards on disk.
class ShardStore {
 public:
  ShardStore(std::string folder, FileSystem& file_system) : folder_(std::move(folder)), file_system_(file_system) {}

  // Fills in those of `shards` that are missing and can be read. `clean`: removes damaged files and what an interrupted
  // writer left; only while nobody else can be writing.
  absl::Status Load(bool clean, Shards* shards) {
    absl::StatusOr<std::vector<FolderEntry>> entries = file_system_.ListFolder(folder_);
    if (absl::IsNotFound(entries.status())) return absl::OkStatus();
    RETURN_IF_ERROR(entries);
    for (const FolderEntry& entry : *entries) {
      const std::string path = JoinPath(folder_, entry.name);
      const std::optional<NamedShard> named = ParseShardName(entry.name);
      if (named.has_value() && named->number >= 0 && named->number < static_cast<int64_t>(shards->size())) {
        std::unique_ptr<TokenShard>& shard = (*shards)[named->number];
        if (shard != nullptr) continue;
        absl::StatusOr<std::unique_ptr<TokenShard>> opened = Open(path, named->hash);
        if (opened.ok()) {
          shard = std::move(opened).value();
          continue;
        }
        if (!absl::IsDataLoss(opened.status())) return opened.status();
        if (clean) file_system_.RemoveFile(path).IgnoreError();
      } else if (clean && std::string_view(entry.name).starts_with(kTemporaryPrefix)) {
        file_system_.RemoveFile(path).IgnoreError();
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<TokenShard>> Save(int64_t number, const std::string& bytes) {
    const std::string hash = ContentHash(bytes);
    const std::string path = JoinPath(folder_, ShardName(number, hash));
    static std::atomic<int64_t> counter{0};
    const std::string temporary = JoinPath(
        folder_, absl::StrCat(std::string(kTemporaryPrefix), std::random_device()(), "-", getpid(), "-", counter++));
    absl::Status written = Write(temporary, bytes);
    if (written.ok()) written = file_system_.Rename(temporary, path);
    if (!written.ok()) {
      file_system_.RemoveFile(temporary).IgnoreError();
      return written;
    }
    return Open(path, hash);
  }

 private:
  // kDataLoss: the file is not what its name says.
  absl::StatusOr<std::unique_ptr<TokenShard>> Open(const std::string& path, const std::string& hash) {
    ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, file_system_.MapFile(path));
    const auto bytes = file->bytes();
    if (ContentHash({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) != hash) {
      return absl::DataLossError(absl::StrCat(path, ": damaged"));
    }
    absl::StatusOr<std::unique_ptr<TokenShard>> shard = TokenShard::Open(std::move(file));
    if (!shard.ok()) return Annotate(shard.status(), path);
    return shard;
  }

  // No sync: a shard that a power loss took is found by its hash and made again.
  absl::Status Write(const std::string& path, const std::string& bytes) {
    ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, file_system_.CreateFile(path));
    RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(bytes))));
    return file->Close();
  }

  std::string folder_;
  FileSystem& file_system_;
};

// Tokenises the missing shards with several threads.
class Tokenizing {
 public:
  Tokenizing(const RowSource& source, const RowFormat& format, const RowEncoder& encoder,
             const TokenCacheOptions& options, ShardStore* store, Shards* shards)
      : source_(source), format_(format), encoder_(encoder), options_(options), store_(*store), shards_(*shards) {
    const int64_t per_shard = RowsPerShard(source.rows());
    for (size_t number = 0; number < shards_.size(); ++number) {
      const int64_t begin = static_cast<int64_t>(number) * per_shard;
      const Task task = {static_cast<int64_t>(number), begin, std::min(begin + per_shard, source.rows())};
      if (shards_[number] == nullptr) {
        tasks_.push_back(task);
      } else {
        rows_done_ += task.end - task.begin;
      }
    }
  }

  absl::Status Run() {
    const int64_t threads = std::clamp<int64_t>(options_.threads, 1, static_cast<int64_t>(tasks_.size()));
    std::vector<std::thread> helpers;
    for (int64_t i = 1; i < threads; ++i) helpers.emplace_back([this] { Work(); });
    Work();
    for (std::thread& helper : helpers) helper.join();
    // Tasks are taken in order and a taken one is always finished, so the first shard with an error is always seen.
    if (!errors_.empty()) return errors_.begin()->second;
    return absl::OkStatus();
  }

 private:
  struct Task {
    int64_t number, begin, end;
  };

  void Work() {
    while (!failed_) {
      const size_t next = next_++;
      if (next >= tasks_.size()) return;
      const Task& task = tasks_[next];
      absl::StatusOr<std::unique_ptr<TokenShard>> shard = Build(task);
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!shard.ok()) {
        errors_[task.number] = shard.status();
        failed_ = true;
        return;
      }
      shards_[task.number] = std::move(shard).value();
      rows_done_ += task.end - task.begin;
      if (options_.progress) options_.progress(rows_done_, source_.rows());
    }
  }

  absl::StatusOr<std::unique_ptr<TokenShard>> Build(const Task& task) {
    ASSIGN_OR_RETURN(const std::vector<Row> rows, source_.Read(task.begin, task.end, format_.columns()));
    TokenShardBuilder builder;
    for (int64_t row = task.begin; row < task.end; ++row) {
      const absl::Status added = AddRow(row, rows[row - task.begin], &builder);
      if (!added.ok()) return Annotate(added, source_.Where(row));
    }
    ASSIGN_OR_RETURN(const std::string bytes, builder.Serialize());
    absl::StatusOr<std::unique_ptr<TokenShard>> saved = store_.Save(task.number, bytes);
    if (!saved.ok()) return Annotate(saved.status(), "the cache of tokens");
    return saved;
  }

  absl::Status AddRow(int64_t row_id, const Row& row, TokenShardBuilder* builder) {
    ASSIGN_OR_RETURN(const Sample sample, format_.Convert(row));
    ASSIGN_OR_RETURN(EncodedRow encoded, encoder_.Encode(sample));
    ASSIGN_OR_RETURN(const bool truncated, Truncate(options_.truncation, options_.max_length, &encoded));
    builder->Add(row_id, encoded, truncated);
    return absl::OkStatus();
  }

  const RowSource& source_;
  const RowFormat& format_;
  const RowEncoder& encoder_;
  const TokenCacheOptions& options_;
  ShardStore& store_;
  std::vector<Task> tasks_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // guards what follows
  Shards& shards_;
  int64_t rows_done_ = 0;
  std::map<int64_t, absl::Status> errors_;  // by shard
};

int64_t MissingShards(const Shards& shards) { return std::count(shards.begin(), shards.end(), nullptr); }

// The lock ends with this function: reading needs none.
absl::Status BuildMissing(const RowSource& source, const RowFormat& format, const RowEncoder& encoder,
                          const TokenCacheOptions& options, const std::string& folder, FileSystem& file_system,
                          ShardStore* store, Shards* shards, int64_t* built, FolderUse* use) {
  // Another process may remove the folder between the two, as one that nobody uses; hardly twice.
  for (int attempt = 0; attempt < 3 && !use->held(); ++attempt) {
    RETURN_IF_ERROR(Annotate(CreateFolderWithParents(file_system, folder), "the cache of tokens"));
    *use = FolderUse::Of(folder);
  }
  const FolderLock lock(folder);
  RETURN_IF_ERROR(store->Load(/*clean=*/lock.held(), shards));
  *built = MissingShards(*shards);
  if (*built == 0) return absl::OkStatus();
  return Tokenizing(source, format, encoder, options, store, shards).Run();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenCache>> TokenCache::Open(const RowSource& source, const RowFormat& format,
                                                             const RowEncoder& encoder,
                                                             const TokenCacheOptions& options,
                                                             FileSystem& file_system) {
  std::unique_ptr<TokenCache> cache(new TokenCache());
  cache->folder_ = JoinPath(JoinPath(options.cache_dir, "tokens"), CacheKey(source, format, encoder, options));
  const int64_t per_shard = RowsPerShard(source.rows());
  cache->shards_.resize((source.rows() + per_shard - 1) / per_shard);
  ShardStore store(cache->folder_, file_system);
  cache->use_ = FolderUse::Of(cache->folder_);
  // A whole cache needs neither lock nor a folder that can be written to.
  RETURN_IF_ERROR(store.Load(/*clean=*/false, &cache->shards_));
  if (MissingShards(cache->shards_) > 0) {
    RETURN_IF_ERROR(BuildMissing(source, format, encoder, options, cache->folder_, file_system, &store, &cache->shards_,
                                 &cache->shards_built_, &cache->use_));
  }
  if (cache->shards_built_ > 0) {
    RemoveUnusedFolders(JoinPath(options.cache_dir, "tokens"), options.max_bytes, file_system);
  }
  for (const auto& shard : cache->shards_) {
    cache->stats_.Add(shard->stats());
    cache->starts_.push_back(cache->starts_.back() + shard->rows());
  }
  return cache;
}

TokenSpan TokenCache::row(int64_t index) const {
  const size_t shard = std::upper_bound(starts_.begin(), starts_.end(), index) - starts_.begin() - 1;
  return shards_[shard]->row(index - starts_[shard]);
}

absl::StatusOr<std::string> ResolveCacheDir(const std::string& configured,
                                            const std::function<const char*(const char*)>& environment) {
  if (!configured.empty()) return configured;
  const auto set = [&](const char* name) {
    const char* value = environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = set("XDG_CACHE_HOME"); !cache.empty()) return JoinPath(cache, "sluice");
  if (const std::string home = set("HOME"); !home.empty()) return JoinPath(JoinPath(home, ".cache"), "sluice");
  return absl::InvalidArgumentError("no place for the tokenised cache: set data.cache_dir (HOME is not set)");
}

}  // namespace sluice::engine
