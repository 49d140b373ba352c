// Files: read whole or piece by piece, written all or nothing. Knows no format.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace headroom {

class Gunzip;

// The content of a file. Throws InvalidArgument naming the file when it cannot be read or has more than
// `max_bytes`. `check_start`, which may throw, sees the first KiBs (or all) before the rest is read: a device
// without an end, or a large file of something else, is then refused at once.
std::string read_file(const std::string& path, int64_t max_bytes,
                      const std::function<void(std::string_view)>& check_start = {});

// Writes the parts one after the other to a file beside `path`, which has no name until it is whole where the
// file system can do that, and then takes the place of `path`: that holds the old content or the new, never a
// half. What is no regular file (a pipe, /dev/stdout) is written directly. Throws InvalidArgument naming the
// file when it cannot be opened, and Error when it cannot be written to its end.
void write_file(const std::string& path, std::span<const std::string_view> parts);

// Throws InvalidArgument naming the file when write_file would not be able to write it: to be known before
// hours of work, not after. Leaves `path` as it is and nothing beside it.
void require_writable(const std::string& path);

// Whether both paths lead to one file, through links or not, also when it is not there yet.
bool is_same_file(const std::string& a, const std::string& b);

// A file read from beginning to end, gunzipped on the way where its content says gzip.
class InputFile {
 public:
  // Throws InvalidArgument naming the file when it cannot be opened.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Reads up to `bytes` of content: fewer than asked at the end only. Throws InvalidArgument naming the file
  // when it cannot be read, or when its gzip data is truncated or corrupt.
  int64_t read(void* destination, int64_t bytes);

  // How much of the file is read, 0 to 1; nothing of a pipe.
  std::optional<double> share_read() const;

  // Bytes of the file, as it is stored, that the content so far took.
  int64_t stored_bytes() const;

  const std::string& path() const { return path_; }
  // Throws InvalidArgument of one line: the file and `why`.
  [[noreturn]] void fail(std::string_view why) const;

 private:
  const std::string path_;
  int descriptor_ = -1;
  std::unique_ptr<Gunzip> content_;
  int64_t at_ = 0;
  int64_t file_bytes_ = 0;  // as it is stored; 0 of a pipe
};

}  // namespace headroom
