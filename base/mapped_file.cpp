#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace headroom {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const auto refuse = [&](const char* doing, int error) {
    throw InvalidArgument(fmt::format("{}: cannot {} it: {}", path_, doing, std::strerror(error)));
  };
  // O_NONBLOCK avoids waiting for the other end of a pipe.
  const int descriptor = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse("open", errno);
  struct stat status {};
  void* address = nullptr;
  const bool is_known = fstat(descriptor, &status) == 0;
  int error = is_known ? 0 : errno;
  const bool is_file = is_known && S_ISREG(status.st_mode);
  if (is_file && status.st_size > 0) {
    address = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) error = errno;
  }
  close(descriptor);
  if (error != 0) refuse("map", error);
  if (!is_file) throw InvalidArgument(fmt::format("{}: not a regular file", path_));
  if (address != nullptr) {
    bytes_ = {static_cast<const std::byte*>(address), static_cast<size_t>(status.st_size)};
  }
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace headroom
