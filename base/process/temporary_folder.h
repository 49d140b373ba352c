// A folder for files that nobody needs later.
#pragma once

#include <string>

namespace headroom {

// In the system's folder for temporary files (TMPDIR); gone with the object, and all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();  // throws Error if it cannot be created
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace headroom
