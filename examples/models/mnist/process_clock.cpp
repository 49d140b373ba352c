#include "examples/models/mnist/process_clock.h"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace headroom {
namespace {

double now() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Field 22 of /proc/self/stat (proc(5)): clock ticks from boot to the process' start. The second field, the
// program's name in parentheses, may hold blanks.
std::optional<double> read_start() {
  std::ifstream file("/proc/self/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  double ticks = 0;
  if (!(std::istringstream(field) >> ticks) || ticks <= 0) return {};
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

double seconds_since_process_start() {
  static const double kStart = read_start().value_or(now());
  return now() - kStart;
}

}  // namespace headroom
