#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/mapped_file.h"
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

// A named pipe that a thread writes the content into, once.
class FilledPipe {
 public:
  FilledPipe(const std::string& path, std::string content)
      : path_(path), writer_([path, content = std::move(content)] {
          const int pipe = open(path.c_str(), O_WRONLY);
          for (size_t at = 0; at < content.size();) {
            const ssize_t done = write(pipe, content.data() + at, content.size() - at);
            if (done <= 0) break;
            at += static_cast<size_t>(done);
          }
          close(pipe);
        }) {}
  ~FilledPipe() { writer_.join(); }
  FilledPipe(const FilledPipe&) = delete;
  FilledPipe& operator=(const FilledPipe&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::thread writer_;
};

std::string pipe_in(const ScratchFolder& folder, const char* name) {
  const std::string path = folder / name;
  EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
  return path;
}

TEST(Pipes, AreReadFromTheBeginningAsOftenAsTheyAreOpened) {
  const ScratchFolder folder;
  std::string content;
  for (int i = 0; i < 50'000; ++i) content += std::to_string(i);
  const FilledPipe pipe(pipe_in(folder, "pipe"), content);
  char start[10];
  EXPECT_EQ(OpenFile(pipe.path()).read(start, 10), 10);  // a part, as who looks for the format
  EXPECT_EQ(std::string(start, 10), content.substr(0, 10));
  EXPECT_EQ(read_file(pipe.path(), kMiB), content);
  InputFile streamed(pipe.path());
  std::string read(content.size() + 1, ' ');
  EXPECT_EQ(streamed.read(read.data(), std::ssize(read)), std::ssize(content));
  const MappedFile mapped(pipe.path());
  EXPECT_EQ(std::memcmp(mapped.bytes().data(), content.data(), content.size()), 0);
  EXPECT_EQ(mapped.bytes().size(), content.size());
  EXPECT_EQ(read_file(name_for_child(pipe.path()), kMiB), content);
}

TEST(Pipes, OneThatDoesNotEndIsRefusedWithASentence) {
  char chunk[1 << 16];
  OpenFile endless("/dev/zero");
  try {
    while (endless.read(chunk, std::ssize(chunk)) > 0) {
    }
    FAIL() << "it ended";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "/dev/zero: more than 1.00 GiB came out of it; if that is meant, write it to a file");
  }
  EXPECT_THROW(MappedFile("/dev/zero"), InvalidArgument);
}

TEST(Pipes, OneThatWasFoundWritableStaysOpenUntilItIsWritten) {
  const ScratchFolder folder;
  const std::string path = pipe_in(folder, "pipe");
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  require_writable(path);
  char byte = 0;
  EXPECT_EQ(read(reader, &byte, 1), -1);  // 0 would be its end
  const std::string_view parts[] = {"content"};
  write_file(path, parts);
  char content[8] = {};
  EXPECT_EQ(read(reader, content, sizeof(content)), 7);
  EXPECT_STREQ(content, "content");
  close(reader);
}

TEST(WriteFile, RefusesLinksThatLeadRoundInACircle) {
  const ScratchFolder folder;
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  const std::string_view parts[] = {"content"};
  EXPECT_THROW(write_file(folder / "a", parts), InvalidArgument);
  EXPECT_THROW(require_writable(folder / "a"), InvalidArgument);
  EXPECT_THROW(read_file(folder / "a", 100), InvalidArgument);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "a"));
}

}  // namespace
}  // namespace headroom
