#include "base/process/temporary_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/errors.h"

namespace headroom {

TemporaryFolder::TemporaryFolder()
    : path_((std::filesystem::temp_directory_path() / "headroom-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr)
    throw Error(fmt::format("cannot create {}: {}", path_, std::strerror(errno)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace headroom
