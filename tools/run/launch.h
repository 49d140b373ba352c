// Runs a user's command as a child that keeps its exit code, signals, terminal and stdin, and copies the end
// of its stderr. Knows no GPU.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace headroom {

struct Ended {
  int status = 0;      // of waitpid
  std::string errors;  // the end of its stderr
};

// Runs `words` with these variables of the environment besides those of this process, in the cgroup of that
// `processes_file` if there is one. Throws InvalidArgument when it cannot be started.
Ended launch(const std::vector<std::string>& words,
             const std::vector<std::pair<std::string, std::string>>& variables,
             const std::string& processes_file = {});

// Ends this process as a child with that status ended: with its code, or by its signal.
[[noreturn]] void end_like(int status);

// Says why no library can be preloaded into a program: it is linked statically, or has the rights of another
// user. Empty if one can.
std::string why_not_preloaded(const std::string& file);

}  // namespace headroom
