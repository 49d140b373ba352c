#include "base/mapped_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
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

bool MappedFile::holds(std::span<const std::byte> bytes) const {
  const std::less_equal<> is_before;  // of any two addresses
  return !bytes.empty() && is_before(bytes_.data(), bytes.data()) &&
         is_before(bytes.data() + bytes.size(), bytes_.data() + bytes_.size());
}

void MappedFile::set_aside(std::span<const std::byte> bytes) const noexcept {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto from = static_cast<size_t>(bytes.data() - bytes_.data()) / page * page;
  const auto to = static_cast<size_t>(bytes.data() + bytes.size() - bytes_.data());
  madvise(const_cast<std::byte*>(bytes_.data()) + from, to - from, MADV_DONTNEED);
}

}  // namespace headroom
