#include "base/ended_by_signal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <utility>

namespace headroom {
namespace {

// Globals, because a handler can access nothing else and may not allocate.
std::string interrupted, terminated;
std::array<char, 4096> unfinished;

void end(int signal) {
  const std::string& line = signal == SIGINT ? interrupted : terminated;
  if (unfinished[0] != '\0') unlink(unfinished.data());
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  _exit(128 + signal);
}

// No signal meets half a line.
void end_with(std::string of_interrupt, std::string of_termination) {
  sigset_t both{}, before_set{};
  sigemptyset(&both);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&both, signal);
  pthread_sigmask(SIG_BLOCK, &both, &before_set);
  interrupted = std::move(of_interrupt);
  terminated = std::move(of_termination);
  struct sigaction action {};
  action.sa_handler = end;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
  }
  pthread_sigmask(SIG_SETMASK, &before_set, nullptr);
}

}  // namespace

void say_which_signal_ends(std::string_view name, std::string_view why) {
  // A progress bar may stand on the line.
  const char* clear = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  const auto line = [&](const char* signal) {
    return fmt::format("{}{}: ended by {}{}{}\n", clear, name, signal, why.empty() ? "" : " ", why);
  };
  end_with(line("SIGINT"), line("SIGTERM"));
}

void end_silently_by_signals() {
  end_with({}, {});
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
