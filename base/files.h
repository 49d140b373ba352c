// Files: read whole or piece by piece, written all or nothing. Knows no format.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

class Gunzip;

// Returns the content of a file. Throws InvalidArgument naming the file if it cannot be read or has more than
// `max_bytes`. `check_start`, which may throw, sees the first KiBs (or all) before the rest is read, so that
// an endless device or a large file of another kind is refused at once.
std::string read_file(const std::string& path, int64_t max_bytes,
                      const std::function<void(std::string_view)>& check_start = {});

// Writes the parts in order to a temporary file next to `path`, then renames it, so that `path` holds either
// the old or the new content. The temporary file has no name until it is complete, if the file system
// supports that. Writes directly to files that are not regular (a pipe, /dev/stdout). Throws InvalidArgument
// naming the file if it cannot be opened, and Error if it cannot be written completely.
void write_file(const std::string& path, std::span<const std::string_view> parts);

// Throws InvalidArgument naming the file if write_file could not write it, so that this is known before hours
// of work. Leaves `path` unchanged and no other file; keeps a pipe open, whose reader would see its end.
void require_writable(const std::string& path);
// The same for each output of a command that has a name. Throws InvalidArgument as well if two of them are
// one file: only the last would stay. Several may go to what is not a regular file, such as /dev/null.
void require_writable(std::initializer_list<std::string> paths);

// Returns true if both paths lead to the same file, through links or not, even if it does not exist yet.
bool is_same_file(const std::string& a, const std::string& b);

// Returns the folder of what is kept between runs to save time: $XDG_CACHE_HOME/headroom or
// ~/.cache/headroom, which need not exist; empty if the environment names neither.
std::string cache_folder();

// A file open to be read from its beginning. The bytes of a pipe come once, so they are kept: another reader
// of the same pipe in this process gets them from the beginning, too.
class OpenFile {
 public:
  // Throws InvalidArgument naming the file when it cannot be opened.
  explicit OpenFile(const std::string& path);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  // Reads up to `bytes`: none at the end, below 0 with errno set on failure. Throws InvalidArgument when more
  // comes out of a pipe or a device than a file has that people write.
  int64_t read(void* to, int64_t bytes);
  // Bytes of a regular file; nullopt for a pipe.
  std::optional<int64_t> bytes() const { return bytes_; }
  // A descriptor of a regular file with the whole content, to be mapped; the pipe is read to its end first.
  // Throws InvalidArgument for a device.
  int whole();

 private:
  struct Pipe;

  const std::string path_;
  int descriptor_ = -1;
  std::shared_ptr<Pipe> pipe_;  // null for a regular file
  int64_t at_ = 0;
  std::optional<int64_t> bytes_;
};

// Another name of the file, for a child process, which could not read a pipe once more.
std::string name_for_child(const std::string& path);

// A file read from beginning to end, gunzipped on the way where its content says gzip.
class InputFile {
 public:
  // Its errors name the file, or the title of one that people do not know. Throws InvalidArgument when it
  // cannot be opened.
  explicit InputFile(const std::string& path, std::string title = {});
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Reads up to `bytes` of content: fewer than asked at the end only. Throws InvalidArgument naming the file
  // when it cannot be read, or when its gzip data is truncated or corrupt.
  int64_t read(void* destination, int64_t bytes);

  // Returns the share of the file that has been read, 0 to 1; nullopt for a pipe.
  std::optional<double> share_read() const;

  // Returns the bytes of the stored file that the content so far used.
  int64_t stored_bytes() const;

  // Returns the title where there is one.
  const std::string& path() const { return path_; }
  // Throws InvalidArgument of one line: the file and `why`.
  [[noreturn]] void fail(std::string_view why) const;

 private:
  const std::string path_;
  std::unique_ptr<OpenFile> file_;
  std::unique_ptr<Gunzip> content_;
  int64_t at_ = 0;
};

}  // namespace headroom
