// The signals by which people and launchers ask a process to end, noted in place of ending it at once. Knows
// no ranks.
#pragma once

#include <csignal>

namespace headroom {

// One at a time in a process.
class EndSignals {
 public:
  // From now on SIGINT and SIGTERM are noted, and each writes to the eventfd `wake`. One that the process
  // ignores, as a shell lets its background jobs do, stays ignored.
  explicit EndSignals(int wake);
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // The first that has come; 0 before.
  int arrived() const;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[2] = {};
};

}  // namespace headroom
