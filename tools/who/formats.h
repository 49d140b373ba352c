// Shows who holds the memory, as a sheet and as lines. Knows no device.
#pragma once

#include <string>
#include <vector>

#include "base/terminal.h"
#include "sheet/sheet.h"
#include "tools/who/account.h"

namespace headroom::who {

struct View {
  std::vector<Account> accounts;
  std::string problem;  // reason that no GPU of the machine is shown
  std::string failure;  // reason that our share could not be allocated
};

// Verdict first, a table for each device, the next command last; `next` replaces the usual one.
Sheet to_sheet(const View& view, const std::string& next = {});
// Prints a line for each device: the used memory, and its largest users.
std::string to_lines(const View& view);

// "pid 1234 alice: python train.py"; without a pid "other processes".
std::string describe(const Holder& holder);
// Green, yellow or red: how full a device is with that share in use.
Color color_of_share(double used);
// In [0, 1].
double used_share(const Account& account);

}  // namespace headroom::who
