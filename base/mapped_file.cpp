#include "base/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace headroom {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const auto refuse = [&](int error) {
    throw InvalidArgument(fmt::format("{}: cannot map it: {}", path_, std::strerror(error)));
  };
  OpenFile file(path_);
  const int descriptor = file.whole();
  struct stat status {};
  if (fstat(descriptor, &status) != 0) refuse(errno);
  if (!S_ISREG(status.st_mode)) throw InvalidArgument(fmt::format("{}: not a regular file", path_));
  if (status.st_size == 0) return;
  void* const address =
      mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) refuse(errno);
  bytes_ = {static_cast<const std::byte*>(address), static_cast<size_t>(status.st_size)};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace headroom
