// Data that tests read if available: outside the project, in HEADROOM_SHARED or in ../shared next to the
// checkout. The file that includes this has HEADROOM_SOURCE_DIR.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace headroom {

inline std::filesystem::path shared_data() {
  const char* shared = std::getenv("HEADROOM_SHARED");
  return std::filesystem::path(shared ? shared : HEADROOM_SOURCE_DIR "/../shared") / "data";
}

}  // namespace headroom
