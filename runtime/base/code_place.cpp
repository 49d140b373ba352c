#include "runtime/base/code_place.h"

#include <string_view>

namespace headroom {

// Compilers are given whole paths or such from the folder of the build, as CMake and ccache see fit.
std::string CodePlace::text() const {
  constexpr std::string_view root = HEADROOM_SOURCE_DIR "/", up = "../";
  std::string_view file = file_;
  if (file.starts_with(root)) file.remove_prefix(root.size());
  while (file.starts_with(up)) file.remove_prefix(up.size());
  return line_ == 0 ? std::string(file) : std::string(file) + ":" + std::to_string(line_);
}

}  // namespace headroom
