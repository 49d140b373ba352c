// write_file on a disk that takes little at a time, in a process that ends at each of its calls to the disk.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/files.h"
#include "tests/scratch_folder.h"

namespace {

constexpr size_t kBytesAtOnce = 4096;
constexpr int kThrew = 254, kCrashed = -1;
bool is_slow = false;
int calls = 0, last_call = 0;  // last_call 0: the process lives on

// The process ends before the last of its calls is carried out.
void count_call() {
  if (++calls == last_call) raise(SIGKILL);
}

}  // namespace

// In the place of the C library's.
extern "C" ssize_t write(int descriptor, const void* data, size_t bytes) {
  if (!is_slow) return syscall(SYS_write, descriptor, data, bytes);
  count_call();
  if (calls % 3 == 0) {
    errno = EINTR;
    return -1;
  }
  return syscall(SYS_write, descriptor, data, std::min(bytes, kBytesAtOnce));
}
extern "C" int fsync(int descriptor) {
  if (is_slow) count_call();
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (is_slow) count_call();
  return static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

namespace headroom {
namespace {

std::string content_of(const std::string& path) {
  return read_file(path, kMiB);
}

// Returns the end of the process that slowly writes the text there: the number of its calls to the disk, or
// nullopt if it ended at `last`; kThrew or kCrashed otherwise.
int write_slowly(const std::string& path, std::string_view text, int last) {
  const pid_t child = fork();
  if (child == 0) {
    last_call = last;
    is_slow = true;
    const std::array<std::string_view, 2> parts = {text.substr(0, 100), text.substr(100)};
    try {
      write_file(path, parts);
    } catch (...) {
      _exit(kThrew);
    }
    _exit(calls);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return WTERMSIG(status) == SIGKILL ? 0 : kCrashed;
}

TEST(SlowDisk, AProcessThatEndsAtAnyOfItsWritesLeavesTheOldFileOrTheNew) {
  const ScratchFolder folder;
  const std::string path = folder / "run.st", before(9'000, 'a'), after(40'000, 'b');
  const std::array<std::string_view, 1> old = {before};
  write_file(path, old);
  const int calls_of_all = write_slowly(path, after, 0);
  ASSERT_GT(calls_of_all, 40'000 / static_cast<int>(kBytesAtOnce));
  ASSERT_LT(calls_of_all, kThrew);
  EXPECT_EQ(content_of(path), after);
  for (int last = 1; last <= calls_of_all; ++last) {
    write_file(path, old);
    EXPECT_EQ(write_slowly(path, after, last), 0) << last;
    EXPECT_EQ(content_of(path), before) << last;  // even the last call, the rename, was not carried out
  }
  EXPECT_EQ(write_slowly(path, after, 0), calls_of_all);
  EXPECT_EQ(content_of(path), after);
}

}  // namespace
}  // namespace headroom
