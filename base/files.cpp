#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/gunzip.h"

namespace headroom {
namespace {

[[noreturn]] void refuse(const std::string& path, std::string_view doing, int error) {
  throw InvalidArgument(fmt::format("{}: cannot {} it: {}", path, doing, std::strerror(error)));
}

// A full disk, for one, is no mistake of the caller.
[[noreturn]] void fail_to_write(const std::string& path, int error) {
  throw Error(fmt::format("{}: cannot write it: {}", path, std::strerror(error)));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, std::string_view doing)
      : Descriptor(path, flags, doing, path) {}
  // `named` is the file that the user knows if `path` is a temporary one.
  Descriptor(const std::string& path, int flags, std::string_view doing, const std::string& named)
      : value_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (value_ < 0) refuse(named, doing, errno);
  }
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int value() const { return value_; }
  // Closes now, because some file systems report errors only here. Returns false with errno set on failure.
  bool close_now() { return close(std::exchange(value_, -1)) == 0; }

 private:
  int value_;
};

// False with errno set on failure.
bool write_all(int descriptor, std::span<const std::string_view> parts) {
  for (std::string_view part : parts) {
    while (!part.empty()) {
      const ssize_t done = write(descriptor, part.data(), part.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return false;
      part.remove_prefix(static_cast<size_t>(done));
    }
  }
  return true;
}

}  // namespace

std::string read_file(const std::string& path, int64_t max_bytes,
                      const std::function<void(std::string_view)>& check_start) {
  constexpr size_t kStartBytes = 4 * kKiB;  // minimum capacity of a pipe
  const Descriptor file(path, O_RDONLY, "open");
  std::string content;
  bool checked = !check_start;
  for (;;) {
    const size_t have = content.size();
    content.resize(
        have + static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(have), 64 * kKiB, 64 * kMiB)));
    const ssize_t got = read(file.value(), content.data() + have, content.size() - have);
    if (got < 0 && errno != EINTR) refuse(path, "read", errno);
    content.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (!checked && (got == 0 || content.size() >= kStartBytes)) {
      check_start(content);
      checked = true;
    }
    if (static_cast<int64_t>(content.size()) > max_bytes) {
      throw InvalidArgument(
          fmt::format("{}: larger than the {} that are read here", path, format_bytes(max_bytes)));
    }
    if (got == 0) return content;
  }
}

namespace {

// Returns true if `path` exists and is not a regular file. Such a file is written directly, because a rename
// would replace it.
bool is_special(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

// Returns the target of a link, so that the link stays and its target changes.
std::string target_of(const std::string& path) {
  std::error_code error;
  std::filesystem::path way = path;
  constexpr int kMaxLinks = 40;  // Linux's bound
  // weakly_canonical does not follow links to missing files.
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(way, error); ++i) {
    way = way.parent_path() / std::filesystem::read_symlink(way, error);
  }
  const std::filesystem::path target = std::filesystem::weakly_canonical(way, error);
  return error ? path : target.string();
}

std::string temporary_beside(const std::string& target) {
  return fmt::format("{}.{}.tmp", target, gettid());  // other threads write files too
}

std::string folder_of(const std::string& target) {
  const std::filesystem::path folder = std::filesystem::path(target).parent_path();
  return folder.empty() ? "." : folder.string();
}

// Returns a path to an open file; a file without a name has no other.
std::string link_to(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

// Returns true if a file without a name can be written next to `target`. If the process is killed meanwhile,
// the file disappears. NFS has no such files.
bool has_nameless_files(const std::string& target) {
  const int probe = open(folder_of(target).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (probe < 0) return false;
  const bool has_link = access(link_to(probe).c_str(), F_OK) == 0;
  close(probe);
  return has_link;
}

// False with errno set on failure.
bool give_name(int descriptor, const std::string& name) {
  unlink(name.c_str());
  return linkat(AT_FDCWD, link_to(descriptor).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

}  // namespace

void require_writable(const std::string& path) {
  if (path.empty()) throw InvalidArgument("the name of the file to write is empty");
  if (is_special(path)) {
    const Descriptor file(path, O_WRONLY | O_NONBLOCK, "write");
    return;
  }
  const std::string temporary = temporary_beside(target_of(path));
  const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC, "write", path);
  unlink(temporary.c_str());
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) || target_of(a) == target_of(b);
}

void write_file(const std::string& path, std::span<const std::string_view> parts) {
  if (is_special(path)) {
    Descriptor file(path, O_WRONLY, "write");
    if (!write_all(file.value(), parts)) fail_to_write(path, errno);
    return;
  }
  const std::string target = target_of(path);
  const std::string temporary = temporary_beside(target);
  const bool is_nameless = has_nameless_files(target);
  Descriptor file(is_nameless ? folder_of(target) : temporary,
                  is_nameless ? O_WRONLY | O_TMPFILE : O_WRONLY | O_CREAT | O_TRUNC, "write", path);
  if (!write_all(file.value(), parts) || fsync(file.value()) != 0 ||
      (is_nameless && !give_name(file.value(), temporary)) || !file.close_now() ||
      std::rename(temporary.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    unlink(temporary.c_str());
    fail_to_write(path, reason);
  }
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path_, ignored)) fail("is a folder, not a file");
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail(std::strerror(errno));
  try {
    content_ = std::make_unique<Gunzip>(descriptor_);
  } catch (...) {
    close(descriptor_);
    throw;
  }
  struct stat status {};
  if (fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode)) file_bytes_ = status.st_size;
}

InputFile::~InputFile() {
  close(descriptor_);
}

int64_t InputFile::read(void* destination, int64_t bytes) {
  const int64_t done = content_->read(destination, bytes);
  at_ += done;
  switch (content_->fault()) {
    case Gunzip::Fault::kNone:
      return done;
    case Gunzip::Fault::kTruncated:
      fail(fmt::format("the gzip data is truncated (after {} bytes of content)", at_));
    case Gunzip::Fault::kCorrupt:
      fail(fmt::format("the gzip data is corrupt after byte {}: {}", at_, content_->reason()));
    case Gunzip::Fault::kUnreadable:
      fail(fmt::format("reading failed after byte {}: {}", at_, content_->reason()));
  }
  return done;
}

std::optional<double> InputFile::share_read() const {
  if (file_bytes_ == 0) return std::nullopt;
  return std::min(1.0, static_cast<double>(content_->stored_bytes()) / static_cast<double>(file_bytes_));
}

int64_t InputFile::stored_bytes() const {
  return content_->stored_bytes();
}

void InputFile::fail(std::string_view why) const {
  throw InvalidArgument(fmt::format("{}: {}", path_, why));
}

}  // namespace headroom
