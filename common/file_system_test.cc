#include "common/file_system.h"

#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "common/testing/fault_injection_file_system.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace sluice {
namespace {

using ::sluice::testing::FaultInjectionFileSystem;
using ::sluice::testing::StatusIs;
using ::sluice::testing::Surviving;
using ::sluice::testing::TempDir;
using ::testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

absl::Status Write(FileSystem& files, const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files.CreateFile(path));
  RETURN_IF_ERROR(file->Append(Bytes(text)));
  return file->Close();
}

// What both file systems must do alike.
class FileSystemTest : public ::testing::TestWithParam<bool> {
 protected:
  FileSystem& files() { return GetParam() ? PosixFileSystem() : memory_; }
  std::string At(const std::string& name) { return GetParam() ? disk_.Join(name) : "/" + name; }

 private:
  TempDir disk_;
  FaultInjectionFileSystem memory_;
};

TEST_P(FileSystemTest, WritesReadsMapsAndStats) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<WritableFile> file, files().CreateFile(At("a")));
  ASSERT_OK(file->Append(Bytes("hello ")));
  ASSERT_OK(file->Append(Bytes("world")));
  ASSERT_OK(file->Sync());
  ASSERT_OK(file->Close());
  ASSERT_OK_AND_ASSIGN(std::string contents, files().ReadFile(At("a")));
  EXPECT_EQ(contents, "hello world");
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const MappedFile> mapped, files().MapFile(At("a")));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()), "hello world");
  ASSERT_OK_AND_ASSIGN(const FolderEntry entry, files().Stat(At("a")));
  EXPECT_EQ(std::make_tuple(entry.name, entry.is_folder, entry.bytes), std::make_tuple("a", false, 11u));

  ASSERT_OK(Write(files(), At("a"), ""));
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const MappedFile> empty, files().MapFile(At("a")));
  EXPECT_TRUE(empty->bytes().empty());
}

TEST_P(FileSystemTest, NamesTheErrors) {
  EXPECT_THAT(files().ReadFile(At("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(files().Stat(At("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(files().ListFolder(At("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(files().CreateFile(At("none/x")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none/x")));
  EXPECT_THAT(files().RemoveFile(At("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_OK(files().RemoveFolder(At("none")));
  ASSERT_OK(files().CreateFolder(At("folder")));
  EXPECT_THAT(files().CreateFolder(At("folder")), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("folder")));
  EXPECT_FALSE(files().ReadFile(At("folder")).ok());
  EXPECT_FALSE(files().MapFile(At("folder")).ok());
}

TEST_P(FileSystemTest, ListsInOrderOfNames) {
  ASSERT_OK(Write(files(), At("b"), "22"));
  ASSERT_OK(files().CreateFolder(At("c")));
  ASSERT_OK(Write(files(), At("a"), ""));
  ASSERT_OK_AND_ASSIGN(const std::vector<FolderEntry> entries, files().ListFolder(At("")));
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].bytes, 2u);
  EXPECT_EQ(entries[2].name, "c");
  EXPECT_TRUE(entries[2].is_folder);
}

TEST_P(FileSystemTest, RenameReplacesFilesAndEmptyFoldersOnly) {
  ASSERT_OK(Write(files(), At("new"), "new"));
  ASSERT_OK(Write(files(), At("old"), "old"));
  ASSERT_OK(files().Rename(At("new"), At("old")));
  EXPECT_EQ(*files().ReadFile(At("old")), "new");
  EXPECT_FALSE(files().Stat(At("new")).ok());

  ASSERT_OK(files().CreateFolder(At("full")));
  ASSERT_OK(Write(files(), At("full/x"), "x"));
  ASSERT_OK(files().CreateFolder(At("other")));
  ASSERT_OK(Write(files(), At("other/y"), "y"));
  EXPECT_THAT(files().Rename(At("other"), At("full")), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("full")));
  EXPECT_OK(files().ReadFile(At("full/x")));
  ASSERT_OK(files().CreateFolder(At("empty")));
  EXPECT_OK(files().Rename(At("other"), At("empty")));
  EXPECT_OK(files().ReadFile(At("empty/y")));
}

TEST_P(FileSystemTest, ExchangeSwaps) {
  ASSERT_OK(CreateFolderWithParents(files(), At("a/inner")));
  ASSERT_OK(files().CreateFolder(At("b")));
  ASSERT_OK(files().Exchange(At("a"), At("b")));
  EXPECT_OK(files().Stat(At("b/inner")));
  EXPECT_FALSE(files().Stat(At("a/inner")).ok());
}

TEST_P(FileSystemTest, HelpersMakeParentsAndReplaceFiles) {
  ASSERT_OK(CreateFolderWithParents(files(), At("x/y/z")));
  EXPECT_OK(CreateFolderWithParents(files(), At("x/y/z/")));
  ASSERT_OK(WriteFileAtomically(files(), At("x/y/f"), "1"));
  ASSERT_OK(WriteFileAtomically(files(), At("x/y/f"), "2"));
  EXPECT_EQ(*files().ReadFile(At("x/y/f")), "2");
  EXPECT_EQ(files().ListFolder(At("x/y"))->size(), 2u);  // no temporary file left
  EXPECT_FALSE(CreateFolderWithParents(files(), At("x/y/f")).ok());
}

INSTANTIATE_TEST_SUITE_P(Kinds, FileSystemTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Posix" : "Memory"; });

TEST(PosixFileSystemTest, FullDiskNamesPathAndRemedy) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<WritableFile> file, PosixFileSystem().CreateFile("/dev/full"));
  EXPECT_THAT(file->Append(Bytes("x")),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("/dev/full: cannot write: No space left on device (free space")));
}

TEST(SplitPathTest, FoldersAndNames) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"a/b", "a", "b"}, {"a/b/", "a", "b"}, {"b", ".", "b"}, {"/b", "/", "b"}, {"/", "/", ""}, {"a//b", "a", "b"}};
  for (const auto& [path, folder, name] : cases) {
    EXPECT_EQ(SplitPath(path).folder, folder) << path;
    EXPECT_EQ(SplitPath(path).name, name) << path;
  }
}

TEST(FaultInjectionTest, PowerLossKeepsOnlyWhatWasSynced) {
  FaultInjectionFileSystem files;
  ASSERT_OK(WriteFileAtomically(files, "/kept", "kept"));
  ASSERT_OK(Write(files, "/unsynced", "bytes"));
  files.Restart(Surviving::kEverything);
  EXPECT_OK(files.ReadFile("/unsynced"));
  ASSERT_OK(Write(files, "/kept", "changed"));
  ASSERT_OK(Write(files, "/gone", "bytes"));
  files.Restart(Surviving::kSynced);
  EXPECT_EQ(*files.ReadFile("/kept"), "kept");
  EXPECT_FALSE(files.Stat("/gone").ok());
}

TEST(FaultInjectionTest, CountsFailsAndCrashes) {
  FaultInjectionFileSystem files;
  files.FailAtOperation(1, absl::UnavailableError("wire"));
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<WritableFile> file, files.CreateFile("/a"));
  EXPECT_THAT(file->Append(Bytes("1234")), StatusIs(absl::StatusCode::kUnavailable, "wire"));
  EXPECT_TRUE(files.fault_happened());
  EXPECT_OK(file->Append(Bytes("1234")));
  files.CrashAtOperation(0);
  EXPECT_THAT(file->Append(Bytes("1234")), StatusIs(absl::StatusCode::kAborted, HasSubstr("/a")));
  EXPECT_FALSE(files.Stat("/a").ok());
  files.Restart(Surviving::kEverything);
  EXPECT_EQ(files.Stat("/a")->bytes, 6u);
  EXPECT_FALSE(file->Append(Bytes("1")).ok());  // opened before the crash
}

// The atomic write, stopped at each of its operations: the file is the old or the new one, and the new one after OK.
TEST(FaultInjectionTest, AtomicWriteSurvivesEveryCrash) {
  for (const Surviving surviving : {Surviving::kSynced, Surviving::kEverything, Surviving::kRandom}) {
    bool reached = true;
    for (int64_t n = 0; reached; ++n) {
      FaultInjectionFileSystem files;
      ASSERT_OK(WriteFileAtomically(files, "/f", "old"));
      files.CrashAtOperation(n);
      const bool written = WriteFileAtomically(files, "/f", "new").ok();
      reached = files.fault_happened();
      files.Restart(surviving, static_cast<uint64_t>(n));
      ASSERT_OK_AND_ASSIGN(const std::string contents, files.ReadFile("/f"));
      EXPECT_TRUE(contents == "new" || (contents == "old" && !written)) << n << ": " << contents;
    }
  }
}

}  // namespace
}  // namespace sluice
