#include "tools/who/process.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/text.h"

namespace headroom::who {
namespace {

// The words of a command line end in NUL.
std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  return std::string(trimmed(printable(content)));
}

// False only where the open files can be seen and none is a driver's.
bool may_use_gpu(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator files(folder + "/fd", error);
  if (error) return true;
  for (; files != std::filesystem::directory_iterator(); files.increment(error)) {
    if (error) return true;
    const std::filesystem::path target = std::filesystem::read_symlink(files->path(), error);
    if (!error && target.string().starts_with("/dev/nvidia")) return true;
    if (!error && target.string().starts_with("/dev/dxg")) return true;  // Windows Subsystem for Linux
  }
  return false;
}

std::string user_name(uid_t uid) {
  const passwd* entry = getpwuid(uid);
  return entry == nullptr ? fmt::format("{}", uid) : entry->pw_name;
}

}  // namespace

ProcessInfo find_process(int64_t pid, const std::string& proc) {
  const std::string folder = fmt::format("{}/{}", proc, pid);
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0 || !may_use_gpu(folder)) return {};
  std::string command = read_text(folder + "/cmdline");
  if (command.empty()) command = read_text(folder + "/comm");  // ended, not yet waited for
  return {user_name(status.st_uid), command};
}

}  // namespace headroom::who
