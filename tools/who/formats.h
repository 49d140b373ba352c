// Prints who holds the memory, as text and as JSON. Knows no device.
#pragma once

#include <string>
#include <vector>

#include "tools/who/account.h"

namespace headroom::who {

struct View {
  std::vector<Account> accounts;
  std::string problem;  // why no GPU of the machine is shown
  std::string failure;  // what could not be taken for our share
};

// Verdict first, a table for each device, the next command last.
std::string to_text(const View& view);
// `devices`, sizes in exact bytes. `indent` below 0: one line.
std::string to_json(const View& view, int indent);

}  // namespace headroom::who
