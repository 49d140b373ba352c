#include "base/end_signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <iterator>

namespace headroom {
namespace {

// Globals, because a handler can access nothing else.
std::atomic<int> first_signal = 0;
std::atomic<int> wake_of_process = -1;
std::atomic<bool> second_ends = false;

void note_signal(int signal) {
  const int error = errno;
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal) && second_ends) _exit(128 + signal);
  const uint64_t one = 1;
  static_cast<void>(!write(wake_of_process, &one, sizeof one));
  errno = error;
}

}  // namespace

EndSignals::EndSignals(int wake, Second second) {
  first_signal = 0;
  wake_of_process = wake;
  second_ends = second == Second::kEndsTheProcess;
  struct sigaction noted {};
  noted.sa_handler = note_signal;
  noted.sa_flags = SA_RESTART;  // so no library call is interrupted
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &noted, nullptr);
  }
}

EndSignals::~EndSignals() {
  for (size_t i = 0; i < std::size(kSignals) && !ignores_; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  wake_of_process = -1;
}

int EndSignals::arrived() const {
  return first_signal;
}

void EndSignals::ignore_from_now() {
  for (const int signal : kSignals) std::signal(signal, SIG_IGN);
  ignores_ = true;
}

}  // namespace headroom
