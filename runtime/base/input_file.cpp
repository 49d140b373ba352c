#include "runtime/base/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"

namespace headroom {
namespace {

// Without the "<fd:3>: " that zlib puts in front in place of the name, which it was not told.
std::string_view reason(std::string_view message) {
  const size_t name_end = message.find(">: ");
  return name_end == std::string_view::npos ? message : message.substr(name_end + 3);
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path_, ignored)) fail("is a folder, not a file");
  const int descriptor = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(std::strerror(errno));
  file_ = gzdopen(descriptor, "rb");
  if (file_ == nullptr) {
    close(descriptor);
    fail("no memory to read it");
  }
  gzbuffer(file_, 1 << 17);
}

InputFile::~InputFile() {
  gzclose(file_);
}

int64_t InputFile::read(void* destination, int64_t bytes) {
  int64_t done = 0;
  while (done < bytes) {
    const auto chunk = static_cast<unsigned>(std::min(bytes - done, kMiB));
    const int got = gzread(file_, static_cast<uint8_t*>(destination) + done, chunk);
    if (got <= 0) break;
    done += got;
  }
  int status = Z_OK;
  const char* message = gzerror(file_, &status);
  if (status == Z_BUF_ERROR)
    fail(fmt::format("the gzip data is truncated (after {} bytes of content)", at_ + done));
  if (status == Z_DATA_ERROR)
    fail(fmt::format("the gzip data is corrupt after byte {}: {}", at_ + done, reason(message)));
  if (status != Z_OK) fail(fmt::format("reading failed after byte {}: {}", at_ + done, reason(message)));
  at_ += done;
  return done;
}

void InputFile::fail(std::string_view why) const {
  throw InvalidArgument(fmt::format("{}: {}", path_, why));
}

}  // namespace headroom
