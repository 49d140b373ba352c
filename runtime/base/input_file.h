// A file read from its begin to its end, gunzipped on the way where its content says gzip. Knows no format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

struct gzFile_s;  // zlib's

namespace headroom {

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

  const std::string& path() const { return path_; }
  // Throws InvalidArgument of one line: the file and `why`.
  [[noreturn]] void fail(std::string_view why) const;

 private:
  const std::string path_;
  gzFile_s* file_ = nullptr;
  int64_t at_ = 0;
};

}  // namespace headroom
