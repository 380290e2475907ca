#include "engine/data/token_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/testing/fault_injection_file_system.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "engine/data/testing/fake_row_encoder.h"

namespace sluice::engine {
namespace {

namespace testing = ::sluice::testing;

using sluice::testing::StatusIs;
using sluice::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kRows = 1000;  // 4 shards of 256 rows, the last one short
constexpr int64_t kShards = 4;

std::string RowText(int64_t row) { return std::string(1 + row % 13, static_cast<char>('a' + row % 26)); }

class TokenCacheTest : public ::testing::Test {
 protected:
  TokenCacheTest() {
    for (int64_t row = 0; row < kRows; ++row) lines_ += absl::StrCat("{\"text\": \"", RowText(row), "\"}\n");
    OpenSource(lines_);
    options_.cache_dir = temp_.Join("cache");
  }

  void OpenSource(const std::string& lines) { source_ = RowSource::Open({temp_.Write("rows.jsonl", lines)}).value(); }

  absl::StatusOr<std::unique_ptr<TokenCache>> Open(FileSystem& file_system = PosixFileSystem()) {
    ASSIGN_OR_RETURN(const RowFormat format, RowFormat::Resolve({.format = "text"}, {"text"}));
    return TokenCache::Open(*source_, format, encoder_, options_, file_system);
  }

  void ExpectRight(const TokenCache& cache) {
    ASSERT_EQ(cache.rows(), kRows);
    for (int64_t row = 0; row < kRows; ++row) {
      const TokenSpan span = cache.row(row);
      ASSERT_EQ(FakeRowEncoder::Text(span.ids, span.tokens), RowText(row) + '\0');
      ASSERT_EQ(span.sample_id, row);
      ASSERT_TRUE(std::all_of(span.mask, span.mask + span.tokens, [](uint8_t m) { return m == 1; }));
    }
  }

  std::vector<std::filesystem::path> Shards(const TokenCache& cache) {
    std::vector<std::filesystem::path> shards;
    for (const auto& entry : std::filesystem::directory_iterator(cache.folder())) {
      if (entry.path().extension() == ".arrow") shards.push_back(entry.path());
    }
    std::sort(shards.begin(), shards.end());
    return shards;
  }

  TempDir temp_;
  std::string lines_;
  std::unique_ptr<RowSource> source_;
  FakeRowEncoder encoder_;
  TokenCacheOptions options_;
};

TEST_F(TokenCacheTest, TokenisesOnce) {
  ASSERT_OK_AND_ASSIGN(auto first, Open());
  ExpectRight(*first);
  EXPECT_EQ(first->shards_built(), kShards);
  EXPECT_EQ(encoder_.calls, kRows);
  ASSERT_OK_AND_ASSIGN(auto second, Open());
  ExpectRight(*second);
  EXPECT_EQ(second->shards_built(), 0);
  EXPECT_EQ(encoder_.calls, kRows);
  EXPECT_EQ(first->stats(), second->stats());
}

TEST_F(TokenCacheTest, CountsWhatBecameOfTheRows) {
  OpenSource("{\"text\": \"abcdef\"}\n{\"text\": \"\"}\n{\"text\": \"ab\"}\n");
  options_.max_length = 4;
  options_.truncation = Truncation::kRight;
  ASSERT_OK_AND_ASSIGN(auto cache, Open());
  EXPECT_EQ(cache->stats(), (TokenStats{.rows_read = 3,
                                        .rows_kept = 2,
                                        .rows_truncated = 1,
                                        .rows_dropped = 1,
                                        .tokens = 7,
                                        .scored_tokens = 5,
                                        .longest_row = 4}));
  EXPECT_EQ(cache->row(0).sample_id, 0);
  EXPECT_EQ(cache->row(1).sample_id, 2);  // the row without a scored token is gone, the others keep their numbers
}

TEST_F(TokenCacheTest, EveryInputIsPartOfTheKey) {
  std::set<std::string> folders;
  const auto open = [&] { folders.insert(Open().value()->folder()); };
  open();
  options_.max_length = 512;
  open();
  options_.truncation = Truncation::kLeft;
  open();
  encoder_.version = 2;
  open();
  OpenSource(lines_ + "{\"text\": \"one more\"}\n");
  open();
  EXPECT_EQ(folders.size(), 5u);
}

TEST_F(TokenCacheTest, ThreadsDoNotChangeTheBytes) {
  ASSERT_OK_AND_ASSIGN(auto one, Open());
  options_.threads = 8;
  options_.cache_dir = temp_.Join("cache8");
  ASSERT_OK_AND_ASSIGN(auto eight, Open());
  ExpectRight(*eight);
  const auto a = Shards(*one), b = Shards(*eight);
  ASSERT_EQ(a.size(), static_cast<size_t>(kShards));
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i].filename(), b[i].filename());  // names hold the hash of the bytes
}

TEST_F(TokenCacheTest, GoesOnAtTheMissingShard) {
  ASSERT_OK_AND_ASSIGN(auto first, Open());
  std::filesystem::remove(Shards(*first)[2]);
  std::ofstream(first->folder() + "/tmp-left-by-a-crash") << "half a shard";
  const int64_t before = encoder_.calls;
  ASSERT_OK_AND_ASSIGN(auto second, Open());
  ExpectRight(*second);
  EXPECT_EQ(second->shards_built(), 1);
  EXPECT_EQ(encoder_.calls - before, 256);
  EXPECT_FALSE(std::filesystem::exists(first->folder() + "/tmp-left-by-a-crash"));
}

TEST_F(TokenCacheTest, DamagedShardsAreMadeAgain) {
  ASSERT_OK_AND_ASSIGN(auto first, Open());
  const auto shards = Shards(*first);
  first.reset();
  {  // a flipped byte
    std::fstream file(shards[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1000);
    file.put('\x7F');
  }
  std::filesystem::resize_file(shards[1], 100);
  std::filesystem::resize_file(shards[3], 0);
  ASSERT_OK_AND_ASSIGN(auto second, Open());
  ExpectRight(*second);
  EXPECT_EQ(second->shards_built(), 3);
  ASSERT_OK_AND_ASSIGN(auto third, Open());
  EXPECT_EQ(third->shards_built(), 0);
}

TEST_F(TokenCacheTest, StrangeFilesAreLeftAlone) {
  ASSERT_OK_AND_ASSIGN(auto first, Open());
  for (const char* name :
       {"notes.txt", "shard-.arrow", "shard-000099-00.arrow", "shard-000000.arrow", "shard-x-y.arrow"}) {
    std::ofstream(first->folder() + "/" + name) << "?";
  }
  ASSERT_OK_AND_ASSIGN(auto second, Open());
  ExpectRight(*second);
  EXPECT_EQ(second->shards_built(), 0);
  EXPECT_TRUE(std::filesystem::exists(first->folder() + "/notes.txt"));
}

TEST_F(TokenCacheTest, TheFirstBadRowIsNamedWhateverTheThreads) {
  std::string lines = lines_;
  for (int64_t row : {900, 300, 310}) {
    const size_t at = lines.find(RowText(row), [&] {
      size_t offset = 0;
      for (int64_t i = 0; i < row; ++i) offset = lines.find('\n', offset) + 1;
      return offset + 10;
    }());
    lines.replace(at, RowText(row).size(), "refuse");
  }
  OpenSource(lines);
  for (int threads : {1, 4}) {
    options_.threads = threads;
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rows.jsonl:301: refused")));
  }
}

TEST_F(TokenCacheTest, TruncationErrorNamesTheRow) {
  options_.max_length = 10;
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("rows.jsonl:10: has 11 tokens, more than max_length 10")));
}

TEST_F(TokenCacheTest, ReportsProgress) {
  std::vector<int64_t> done;
  options_.threads = 3;
  options_.progress = [&](int64_t rows, int64_t total) {
    EXPECT_EQ(total, kRows);
    done.push_back(rows);
  };
  ASSERT_OK(Open());
  ASSERT_EQ(done.size(), static_cast<size_t>(kShards));
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), kRows);
}

// Several processes find the same empty folder: all get the right tokens, and each shard is made once.
TEST_F(TokenCacheTest, ProcessesShareOneCache) {
  constexpr int kProcesses = 4;
  int built = 0;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto cache = Open();
      _exit(!cache.ok() || (*cache)->rows() != kRows ? 100 : static_cast<int>((*cache)->shards_built()));
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_LE(WEXITSTATUS(status), kShards);
    built += WEXITSTATUS(status);
  }
  EXPECT_EQ(built, kShards);
  ASSERT_OK_AND_ASSIGN(auto cache, Open());
  ExpectRight(*cache);
}

// A crash or power loss at any operation: the next run has the right tokens.
TEST_F(TokenCacheTest, SurvivesACrashAtAnyOperation) {
  options_.cache_dir = "/cache";
  testing::FaultInjectionFileSystem undisturbed;
  ASSERT_OK(Open(undisturbed));
  const int64_t operations = undisturbed.operations();
  ASSERT_GT(operations, 4 * kShards);
  constexpr int64_t kLooksForOldFolders = 2;
  for (const auto surviving :
       {testing::Surviving::kSynced, testing::Surviving::kEverything, testing::Surviving::kRandom}) {
    for (int64_t n = 0; n < operations; ++n) {
      testing::FaultInjectionFileSystem files;
      files.CrashAtOperation(n);
      const auto crashed = Open(files);
      // The last operations only look for old folders to remove: the tokens are whole by then.
      if (n < operations - kLooksForOldFolders) {
        EXPECT_THAT(crashed, Not(testing::IsOk())) << n;
      } else {
        EXPECT_OK(crashed);
      }
      files.Restart(surviving, /*seed=*/n);
      ASSERT_OK_AND_ASSIGN(auto cache, Open(files));
      ExpectRight(*cache);
    }
  }
}

TEST_F(TokenCacheTest, TheLongestUnusedFolderGoesWhenTheCacheIsFull) {
  std::vector<std::string> folders;
  const auto open = [&](int version) {
    encoder_.version = version;
    std::unique_ptr<TokenCache> cache = Open().value();
    folders.push_back(cache->folder());
    return cache;
  };
  const auto there = [&](int i) { return std::filesystem::exists(folders[i]); };
  const std::unique_ptr<TokenCache> in_use = open(1);
  open(2);
  open(3);
  open(2);  // used again: later than the third
  options_.max_bytes = 1;
  ASSERT_OK_AND_ASSIGN(auto untouched, Open());
  EXPECT_TRUE(there(0) && there(1) && there(2)) << "an open that makes nothing removes nothing";
  untouched.reset();
  int64_t bytes = 0;
  for (const auto& shard : Shards(*in_use)) bytes += static_cast<int64_t>(std::filesystem::file_size(shard));
  options_.max_bytes = 3 * bytes;
  open(4);
  EXPECT_TRUE(there(0)) << "in use";
  EXPECT_TRUE(there(1));
  EXPECT_FALSE(there(2));
  ExpectRight(*in_use);
  ASSERT_OK_AND_ASSIGN(auto again, Open());
  EXPECT_EQ(again->shards_built(), 0);
}

TEST_F(TokenCacheTest, AFullDiskIsAnErrorAndNothingIsLost) {
  options_.cache_dir = "/cache";
  testing::FaultInjectionFileSystem files;
  files.SetCapacity(30000);  // room for some of the shards
  EXPECT_THAT(Open(files), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the cache of tokens: /cache")));
  files.SetCapacity(std::nullopt);
  ASSERT_OK_AND_ASSIGN(auto cache, Open(files));
  ExpectRight(*cache);
  EXPECT_GT(cache->shards_built(), 0);
  EXPECT_LT(cache->shards_built(), kShards);
}

TEST_F(TokenCacheTest, AWholeCacheMayBeReadOnly) {
  ASSERT_OK_AND_ASSIGN(auto first, Open());
  std::filesystem::remove(first->folder() + "/lock");
  std::filesystem::permissions(first->folder(),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  ASSERT_OK_AND_ASSIGN(auto second, Open());
  ExpectRight(*second);
  EXPECT_FALSE(std::filesystem::exists(first->folder() + "/lock"));
  std::filesystem::permissions(first->folder(), std::filesystem::perms::owner_all);
}

TEST(ResolveCacheDirTest, ConfiguredThenXdgThenHome) {
  std::map<std::string, const char*> variables;
  const auto environment = [&](const char* name) { return variables.count(name) ? variables[name] : nullptr; };
  EXPECT_THAT(ResolveCacheDir("", environment),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.cache_dir")));
  variables["HOME"] = "/home/ann";
  EXPECT_EQ(ResolveCacheDir("", environment).value(), "/home/ann/.cache/sluice");
  variables["XDG_CACHE_HOME"] = "/var/cache/ann";
  EXPECT_EQ(ResolveCacheDir("", environment).value(), "/var/cache/ann/sluice");
  EXPECT_EQ(ResolveCacheDir("mine", environment).value(), "mine");
}

}  // namespace
}  // namespace sluice::engine
