#include "base/code_place.h"

#include <string_view>

namespace headroom {

// Compilers are given whole paths or such from the folder of the build, as CMake and ccache see fit.
std::string CodePlace::text() const {
  constexpr std::string_view kRoot = HEADROOM_SOURCE_DIR "/", kUp = "../";
  std::string_view file = file_;
  if (file.starts_with(kRoot)) file.remove_prefix(kRoot.size());
  while (file.starts_with(kUp)) file.remove_prefix(kUp.size());
  return line_ == 0 ? std::string(file) : std::string(file) + ":" + std::to_string(line_);
}

}  // namespace headroom
