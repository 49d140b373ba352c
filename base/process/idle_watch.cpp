#include "base/process/idle_watch.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace headroom {
namespace {

// More CPU ticks than a process uses that only checks a clock now and then.
constexpr int64_t kTicks = 5;

// CPU ticks of the process and of its children that have ended: fields 14 to 17 of proc(5), after its name.
std::optional<int64_t> ticks_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  int64_t sum = 0;
  for (int field = 14; field < 18; ++field) {
    int64_t ticks = 0;
    fields >> ticks;
    sum += ticks;
  }
  return fields ? std::optional(sum) : std::nullopt;
}

}  // namespace

std::optional<int64_t> ticks_of_tree(int process) {
  std::optional<int64_t> sum = ticks_of(process);
  if (!sum) return std::nullopt;
  std::error_code failure;
  bool is_known = false;  // some kernels do not list children
  for (const auto& thread :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), failure)) {
    std::ifstream children(thread.path() / "children");
    is_known = is_known || children.is_open();
    for (int child = 0; children >> child;) *sum += ticks_of_tree(child).value_or(0);
  }
  return is_known ? sum : std::nullopt;
}

bool IdleWatch::is_idle() {
  const std::optional<int64_t> ticks = ticks_of_tree(process_);
  const Clock::time_point now = Clock::now();
  if (!ticks || !ticks_ || *ticks >= *ticks_ + kTicks || *ticks < *ticks_) {
    ticks_ = ticks;
    busy_ = now;
  }
  return now - busy_ >= patience_;
}

bool can_read(int file, int child, std::chrono::milliseconds patience) {
  IdleWatch watch(child, patience);
  const int wait_ms = static_cast<int>(std::clamp<int64_t>(patience.count() / 10, 1, 1000));
  pollfd readable{.fd = file, .events = POLLIN, .revents = 0};
  while (poll(&readable, 1, wait_ms) <= 0) {
    if (watch.is_idle()) return false;
  }
  return true;
}

}  // namespace headroom
