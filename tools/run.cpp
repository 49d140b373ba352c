// headroom run: becomes the program headroom_run, which see.

#include "tools/subcommands.h"
#include "tools/workload/child.h"

namespace headroom {

int run_run(int, char** argv) {
  become(runner_path(), argv);
}

}  // namespace headroom
