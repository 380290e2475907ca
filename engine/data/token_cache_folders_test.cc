#include "engine/data/token_cache_folders.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/testing/temp_dir.h"

namespace sluice::engine {
namespace {

using sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FoldersToRemoveTest, TakesTheLongestUnusedUntilTheRestFits) {
  const std::vector<CacheFolder> folders = {{"b", 10, 200}, {"a", 20, 100}, {"d", 40, 400}, {"c", 30, 300}};
  EXPECT_THAT(FoldersToRemove(folders, 100), IsEmpty());
  EXPECT_THAT(FoldersToRemove(folders, 99), ElementsAre("a"));
  EXPECT_THAT(FoldersToRemove(folders, 80), ElementsAre("a"));
  EXPECT_THAT(FoldersToRemove(folders, 79), ElementsAre("a", "b"));
  EXPECT_THAT(FoldersToRemove(folders, 0), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(FoldersToRemove({}, 0), IsEmpty());
}

TEST(FoldersToRemoveTest, WhatIsInUseStaysAndCounts) {
  const std::vector<CacheFolder> folders = {{"a", 20, 100, /*in_use=*/true}, {"b", 10, 200}, {"c", 30, 300}};
  EXPECT_THAT(FoldersToRemove(folders, 59), ElementsAre("b"));
  EXPECT_THAT(FoldersToRemove(folders, 20), ElementsAre("b", "c"));
  EXPECT_THAT(FoldersToRemove(folders, 0), ElementsAre("b", "c"));
}

class RemoveUnusedFoldersTest : public ::testing::Test {
 protected:
  static std::string Key(char digit) { return std::string(32, digit); }

  // A folder of 1000 bytes that was last used at this second.
  std::string Add(const std::string& name, int64_t last_use) {
    temp_.Write(name + "/shard", std::string(1000, 'x'));
    temp_.Write(name + "/in-use", "");
    const timespec times[2] = {{last_use, 0}, {last_use, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, temp_.Join(name + "/in-use").c_str(), times, 0), 0);
    return temp_.Join(name);
  }
  bool There(const std::string& name) { return std::filesystem::exists(temp_.Join(name)); }
  void Remove(int64_t max_bytes) { RemoveUnusedFolders(temp_.path().string(), max_bytes, PosixFileSystem()); }

  TempDir temp_;
};

TEST_F(RemoveUnusedFoldersTest, TheLongestUnusedGoes) {
  Add(Key('a'), 300), Add(Key('b'), 100), Add(Key('c'), 200);
  Remove(3000);
  EXPECT_TRUE(There(Key('a')) && There(Key('b')) && There(Key('c')));
  Remove(2999);
  EXPECT_TRUE(There(Key('a')) && There(Key('c')));
  EXPECT_FALSE(There(Key('b')));
  Remove(0);
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
}

TEST_F(RemoveUnusedFoldersTest, AUseKeepsAFolderAndMakesItTheNewest) {
  const std::string used = Add(Key('a'), 100);
  Add(Key('b'), 200);
  {
    const FolderUse use = FolderUse::Of(used), again = FolderUse::Of(used);
    ASSERT_TRUE(use.held() && again.held());
    Remove(0);
    EXPECT_TRUE(There(Key('a') + "/shard"));
    EXPECT_FALSE(There(Key('b')));
  }
  Add(Key('c'), 300);
  Remove(1000);
  EXPECT_TRUE(There(Key('a'))) << "its use was after the second 300";
  EXPECT_FALSE(There(Key('c')));
}

TEST_F(RemoveUnusedFoldersTest, WhatIsNoCacheIsLeftAlone) {
  Add("notes", 100), Add("AAAABBBBCCCCDDDDAAAABBBBCCCCDDDD", 100);
  temp_.Write(std::string(32, '0'), "a file");
  Remove(0);
  EXPECT_TRUE(There("notes") && There("AAAABBBBCCCCDDDDAAAABBBBCCCCDDDD") && There(std::string(32, '0')));
}

TEST_F(RemoveUnusedFoldersTest, AnInterruptedRemovalIsFinished) {
  Add("removed-" + Key('a'), 100);
  Remove(1'000'000);
  EXPECT_FALSE(There("removed-" + Key('a')));
}

TEST(FolderUseTest, AFolderThatIsNotThereIsNotHeld) {
  EXPECT_FALSE(FolderUse::Of("/nonexistent/folder").held());
  EXPECT_FALSE(FolderUse().held());
}

}  // namespace
}  // namespace sluice::engine
