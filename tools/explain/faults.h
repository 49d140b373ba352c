// What the numbers of the driver's fault reports (Xid) mean. A table.
#pragma once

#include <cstdint>
#include <string_view>

namespace headroom::explain {

struct Fault {
  int64_t xid;
  bool by_program;  // the program did it, not the GPU
  std::string_view meaning;
};

// Null for a number that is not in the table.
const Fault* fault_of(int64_t xid);

}  // namespace headroom::explain
