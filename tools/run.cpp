// headroom run: becomes the program headroom_run, which see.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/core/errors.h"
#include "tools/subcommands.h"
#include "tools/workload/child.h"

namespace headroom {

int run_run(int, char** argv) {
  const std::string program = runner_path();
  execv(program.c_str(), argv);
  throw Error(fmt::format("{}: {}", program, std::strerror(errno)));
}

}  // namespace headroom
