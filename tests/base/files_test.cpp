#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>

#include "base/errors.h"
#include "tests/scratch_folder.h"

namespace headroom {
namespace {

TEST(RequireWritable, LeavesTheFileAsItIsAndNothingBesideIt) {
  const ScratchFolder folder;
  const std::string old = folder.write("old", "content");
  require_writable(old);
  require_writable(folder / "new");
  EXPECT_EQ(read_file(old, 100), "content");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(RequireWritable, RefusesFoldersAndFilesInMissingFoldersAndNoName) {
  const ScratchFolder folder;
  EXPECT_THROW(require_writable(""), InvalidArgument);
  EXPECT_THROW(require_writable(folder.path()), InvalidArgument);
  EXPECT_THROW(require_writable(folder / "missing/file"), InvalidArgument);
}

TEST(WriteFile, KeepsALinkAndWritesWhatItPointsTo) {
  const ScratchFolder folder;
  folder.write("old", "before");
  for (const char* target : {"old", "new"}) {  // the second is not there yet
    const std::string link = folder / "link";
    std::filesystem::create_symlink(target, link);
    const std::string_view parts[] = {"content"};
    write_file(link, parts);
    EXPECT_TRUE(std::filesystem::is_symlink(link)) << target;
    EXPECT_EQ(read_file(folder / target, 100), "content");
    std::filesystem::remove(link);
  }
}

TEST(WriteFile, AFullDiskIsNoMistakeOfTheCaller) {
  const std::string_view parts[] = {"content"};
  try {
    write_file("/dev/full", parts);
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/dev/full: cannot write it: No space left on device");
    EXPECT_EQ(exit_code(error), kExitOther);
  }
  EXPECT_THROW(write_file("/no/such/folder/file", parts), InvalidArgument);
}

// A limit whose signal is not ignored ends the process in the middle of the second part.
TEST(WriteFile, LeavesTheOldFileAloneWhenTheProcessIsKilledMeanwhile) {
  const ScratchFolder folder;
  const int nameless = open(folder.path().c_str(), O_WRONLY | O_TMPFILE, 0600);
  if (nameless < 0) GTEST_SKIP() << "the file system has no files without a name";
  close(nameless);
  const std::string old = folder.write("old", "content");
  const auto write_too_much = [&] {
    const rlimit none{0, 0}, little{4096, 4096};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_FSIZE, &little);
    std::signal(SIGXFSZ, SIG_DFL);
    const std::string much(8192, ' ');
    const std::string_view parts[] = {"new", much};
    write_file(old, parts);
  };
  EXPECT_EXIT(write_too_much(), testing::KilledBySignal(SIGXFSZ), "");
  EXPECT_EQ(read_file(old, 100), "content");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(IsSameFile, SeesThroughLinksAndWaysThere) {
  const ScratchFolder folder;
  const std::string a = folder.write("a", "content");
  std::filesystem::create_symlink(folder / "new", folder / "link");
  EXPECT_TRUE(is_same_file(a, folder / "./a"));
  EXPECT_TRUE(is_same_file(folder / "link", folder / "new"));
  EXPECT_FALSE(is_same_file(a, folder / "new"));
}

}  // namespace
}  // namespace headroom
