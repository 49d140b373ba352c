#include "runtime/base/ended_by_signal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <string>

namespace headroom {
namespace {

// A handler reaches nothing else, and may not allocate.
std::string interrupted, terminated;
std::array<char, 4096> unfinished;

void end(int signal) {
  const std::string& line = signal == SIGINT ? interrupted : terminated;
  if (unfinished[0] != '\0') unlink(unfinished.data());
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  _exit(128 + signal);
}

}  // namespace

void say_which_signal_ends(const char* name) {
  // A progress bar may stand on the line.
  const char* clear = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  interrupted = fmt::format("{}{}: ended by SIGINT\n", clear, name);
  terminated = fmt::format("{}{}: ended by SIGTERM\n", clear, name);
  struct sigaction action {};
  action.sa_handler = end;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
  }
}

void remove_when_ended(const std::string& path) {
  unfinished[0] = '\0';  // no path while it is half written
  if (path.empty() || path.size() >= unfinished.size()) return;
  std::copy(path.begin() + 1, path.end(), unfinished.begin() + 1);
  unfinished[path.size()] = '\0';
  std::atomic_signal_fence(std::memory_order_seq_cst);
  unfinished[0] = path[0];
}

}  // namespace headroom
