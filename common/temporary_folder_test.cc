#include "common/temporary_folder.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <utility>

#include "common/testing/status_matchers.h"

namespace sluice {
namespace {

using ::sluice::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TemporaryFolderTest, IsPrivateAndGoesWithItsContents) {
  std::string path;
  {
    ASSERT_OK_AND_ASSIGN(const TemporaryFolder folder, TemporaryFolder::Create("sluice-test-"));
    path = folder.path();
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    std::filesystem::create_directories(path + "/a/b");
    std::ofstream(path + "/a/b/file") << "x";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TemporaryFolderTest, TwoAreTwoFolders) {
  ASSERT_OK_AND_ASSIGN(const TemporaryFolder first, TemporaryFolder::Create("sluice-test-"));
  ASSERT_OK_AND_ASSIGN(const TemporaryFolder second, TemporaryFolder::CreateIn(first.path(), "in-"));
  EXPECT_THAT(second.path(), StartsWith(first.path() + "/in-"));
}

TEST(TemporaryFolderTest, IsRemovedOnceWhereItIsMoved) {
  std::optional<TemporaryFolder> kept;
  {
    ASSERT_OK_AND_ASSIGN(TemporaryFolder folder, TemporaryFolder::Create("sluice-test-"));
    kept.emplace(std::move(folder));
  }
  EXPECT_TRUE(std::filesystem::exists(kept->path()));
  const std::string path = kept->path();
  kept.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TemporaryFolderTest, StaysWhereItIsKept) {
  ASSERT_OK_AND_ASSIGN(const TemporaryFolder outer, TemporaryFolder::Create("sluice-test-"));
  std::string path;
  {
    ASSERT_OK_AND_ASSIGN(TemporaryFolder folder, TemporaryFolder::CreateIn(outer.path(), "kept-"));
    folder.Keep();
    path = folder.path();
  }
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(TemporaryFolderTest, AnErrorNamesTheParentAndWhatToDo) {
  EXPECT_THAT(TemporaryFolder::CreateIn("/nonexistent", "x-"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(StartsWith("/nonexistent: "), HasSubstr("No such file"), HasSubstr("set TMPDIR"))));
}

TEST(TemporaryFolderTest, ATmpdirThatIsNoFolderIsAnError) {
  const char* const before = getenv("TMPDIR");
  const std::string saved = before == nullptr ? "" : before;
  setenv("TMPDIR", "/nonexistent", 1);
  EXPECT_THAT(TemporaryFolder::Create("x-"),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(StartsWith("/nonexistent"), HasSubstr("set TMPDIR"))));
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", saved.c_str(), 1);
  }
}

}  // namespace
}  // namespace sluice
