// headroom repro: becomes the program headroom_repro, which see.

#include "tools/subcommands.h"
#include "tools/workload/child.h"

namespace headroom {

int run_repro(int, char** argv) {
  become(sibling_path("headroom_repro"), argv);
}

}  // namespace headroom
