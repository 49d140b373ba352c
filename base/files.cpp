#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

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
  explicit Descriptor(int opened) : value_(opened) {}
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

// More than any log or trace that people pipe.
constexpr int64_t kMaxPipeBytes = kGiB;

// Repeats a call of the system while signals interrupt it.
template <typename Call>
ssize_t retried(const Call& call) {
  ssize_t result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// False with errno set on failure.
bool write_all(int descriptor, std::span<const std::string_view> parts) {
  for (std::string_view part : parts) {
    while (!part.empty()) {
      const ssize_t done = retried([&] { return write(descriptor, part.data(), part.size()); });
      if (done < 0) return false;
      part.remove_prefix(static_cast<size_t>(done));
    }
  }
  return true;
}

}  // namespace

// Bytes that came out of a pipe so far, in memory without a name.
struct OpenFile::Pipe {
  explicit Pipe(int opened) : from(opened), kept(memfd_create("headroom-pipe", MFD_CLOEXEC)) {}

  int from, kept;  // until the process ends
  int64_t bytes = 0;
  bool is_at_end = false, is_device = false;
  std::mutex mutex;

  int64_t read(const std::string& path, int64_t at, void* to, int64_t wanted) {
    const std::lock_guard lock(mutex);
    if (at == bytes && !is_at_end) {
      const ssize_t got = retried([&] { return ::read(from, to, static_cast<size_t>(wanted)); });
      if (got < 0) return got;
      is_at_end = got == 0;
      if (bytes + got > kMaxPipeBytes) {
        throw InvalidArgument(
            fmt::format("{}: more than {} came out of it; if that is meant, write it to a file", path,
                        format_bytes(kMaxPipeBytes)));
      }
      const std::string_view part(static_cast<const char*>(to), static_cast<size_t>(got));
      if (!write_all(kept, std::span(&part, 1))) return -1;
      bytes += got;
      return got;
    }
    return retried([&] { return pread(kept, to, static_cast<size_t>(std::min(wanted, bytes - at)), at); });
  }
};

OpenFile::OpenFile(const std::string& path) : path_(path) {
  // Every pipe that this process has read, by the identity of the file.
  static std::mutex mutex;
  static std::map<std::pair<dev_t, ino_t>, std::shared_ptr<Pipe>> pipes;
  struct stat status {};
  const auto refused = [&] { refuse(path_, "open", errno); };
  if (stat(path.c_str(), &status) != 0) refused();
  const auto open_it = [&] {
    const int opened = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0) refused();
    return opened;
  };
  if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode) || S_ISBLK(status.st_mode)) {
    descriptor_ = open_it();
    bytes_ = status.st_size;
    return;
  }
  const std::lock_guard lock(mutex);
  std::shared_ptr<Pipe>& known = pipes[{status.st_dev, status.st_ino}];
  if (known == nullptr) known = std::make_shared<Pipe>(open_it());
  known->is_device = S_ISCHR(status.st_mode);
  pipe_ = known;
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

int64_t OpenFile::read(void* to, int64_t bytes) {
  if (pipe_ == nullptr) return retried([&] { return ::read(descriptor_, to, static_cast<size_t>(bytes)); });
  const int64_t got = pipe_->read(path_, at_, to, bytes);
  at_ += std::max<int64_t>(got, 0);
  return got;
}

int OpenFile::whole() {
  if (pipe_ == nullptr) return descriptor_;
  if (pipe_->is_device) throw InvalidArgument(fmt::format("{}: not a regular file", path_));
  std::vector<char> chunk(size_t{1} << 20);
  for (int64_t got = 1; got != 0;) {
    got = read(chunk.data(), std::ssize(chunk));
    if (got < 0) refuse(path_, "read", errno);
  }
  return pipe_->kept;
}

std::string name_for_child(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || (!S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode)))
    return path;
  OpenFile file(path);
  return fmt::format("/proc/{}/fd/{}", getpid(), file.whole());
}

std::string read_file(const std::string& path, int64_t max_bytes,
                      const std::function<void(std::string_view)>& check_start) {
  constexpr size_t kStartBytes = 4 * kKiB;  // minimum capacity of a pipe
  OpenFile file(path);
  std::string content;
  bool checked = !check_start;
  for (;;) {
    const size_t have = content.size();
    content.resize(
        have + static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(have), 64 * kKiB, 64 * kMiB)));
    const int64_t got = file.read(content.data() + have, static_cast<int64_t>(content.size() - have));
    if (got < 0) refuse(path, "read", errno);
    content.resize(have + static_cast<size_t>(got));
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

// Returns the target of a link, so that the link stays and its target changes. Throws InvalidArgument for
// links that lead round in a circle.
std::string target_of(const std::string& path) {
  std::error_code error;
  std::filesystem::path way = path;
  constexpr int kMaxLinks = 40;  // Linux's bound
  // weakly_canonical does not follow links to missing files.
  for (int i = 0; std::filesystem::is_symlink(way, error); ++i) {
    if (i == kMaxLinks) refuse(path, "write", ELOOP);
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
    // Until the process ends. A pipe whose reader is still to come is opened when it is written.
    static std::mutex mutex;
    static std::map<std::string, std::unique_ptr<Descriptor>> kept;
    const std::lock_guard lock(mutex);
    std::unique_ptr<Descriptor>& file = kept[path];
    if (file != nullptr) return;
    const int opened = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0 && errno != ENXIO) refuse(path, "write", errno);
    file = std::make_unique<Descriptor>(opened);
    return;
  }
  const std::string temporary = temporary_beside(target_of(path));
  const Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC, "write", path);
  unlink(temporary.c_str());
}

void require_writable(std::initializer_list<std::string> paths) {
  for (auto path = paths.begin(); path != paths.end(); ++path) {
    if (path->empty()) continue;
    const bool is_taken = std::any_of(paths.begin(), path, [&](const std::string& other) {
      return !other.empty() && is_same_file(*path, other);
    });
    if (is_taken && !is_special(*path))
      throw InvalidArgument(fmt::format("{}: two outputs would go to it", *path));
    require_writable(*path);
  }
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) || target_of(a) == target_of(b);
}

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME");
  if (!cache.empty()) return cache + "/headroom";
  return home.empty() ? "" : home + "/.cache/headroom";
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

InputFile::InputFile(const std::string& path, std::string title)
    : path_(title.empty() ? path : std::move(title)) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) fail("is a folder, not a file");
  file_ = std::make_unique<OpenFile>(path);
  content_ = std::make_unique<Gunzip>([this](void* to, int64_t bytes) { return file_->read(to, bytes); });
}

InputFile::~InputFile() = default;

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
  const int64_t bytes = file_->bytes().value_or(0);
  if (bytes == 0) return std::nullopt;
  return std::min(1.0, static_cast<double>(content_->stored_bytes()) / static_cast<double>(bytes));
}

int64_t InputFile::stored_bytes() const {
  return content_->stored_bytes();
}

void InputFile::fail(std::string_view why) const {
  throw InvalidArgument(fmt::format("{}: {}", path_, why));
}

}  // namespace headroom
