// headroom who: becomes the program headroom_who, which see.

#include "tools/subcommands.h"
#include "tools/workload/child.h"

namespace headroom {

int run_who(int, char** argv) {
  become(sibling_path("headroom_who"), argv);
}

}  // namespace headroom
