#include "tools/run/python_hook.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/errors.h"
#include "base/files.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

// Not by write_file, which waits for the disk.
bool write_files(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  for (const auto& [name, text] : kHookFiles) {
    std::ofstream file(folder + name, std::ios::binary);
    if (!(file << text).flush()) return false;
  }
  return true;
}

// True for a folder in which no other user can change anything: Python runs what it finds there.
bool is_ours(const std::string& folder) {
  struct stat facts {};
  return lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() &&
         (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool is_ready(const std::string& folder) {
  struct stat facts {};
  if (!is_ours(folder)) return false;
  for (const auto& [name, text] : kHookFiles) {
    if (lstat((folder + name).c_str(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != geteuid() ||
        static_cast<size_t>(facts.st_size) != text.size())
      return false;
  }
  return true;
}

}  // namespace

std::string python_hook_folder(const std::string& temporary) {
  const std::string cache = cache_folder();
  // PYTHONPATH takes no colons, and a program may start in another folder.
  if (cache.starts_with('/') && cache.find(':') == std::string::npos) {
    const std::string folder = fmt::format("{}/run-{}", cache, kHookHash.substr(0, 16));
    std::error_code error;
    fs::create_directories(cache, error);
    if (is_ours(cache) && is_ready(folder)) return folder;
    std::string fresh = folder + "-XXXXXX";
    if (is_ours(cache) && mkdtemp(fresh.data()) != nullptr) {
      fs::remove_all(folder, error);  // damaged, or open to others
      // Another command may have been faster.
      if (!write_files(fresh) || rename(fresh.c_str(), folder.c_str()) != 0) fs::remove_all(fresh, error);
      if (is_ready(folder)) return folder;
    }
  }
  const std::string folder = temporary + "/python";
  if (!write_files(folder)) throw Error(fmt::format("cannot write {}", folder));
  return folder;
}

}  // namespace headroom
