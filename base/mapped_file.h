// A memory-mapped file, read without a copy. Knows no format.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace headroom {

class MappedFile {
 public:
  // Maps the whole file, or all that comes out of a pipe. Throws InvalidArgument naming the file when it
  // cannot be opened or is a folder or a device. The file must not shrink while this lives.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Returns true if the bytes are some of the file's.
  bool holds(std::span<const std::byte> bytes) const;
  // Tells the system that the bytes, some of the file's, are not read soon: their pages leave this process's
  // memory, and come back when they are read.
  void set_aside(std::span<const std::byte> bytes) const noexcept;

 private:
  const std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace headroom
