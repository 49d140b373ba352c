// Notes SIGINT and SIGTERM instead of ending the process at once. Knows no ranks.
#pragma once

#include <csignal>

namespace headroom {

// One at a time in a process.
class EndSignals {
 public:
  // From now on each signal is noted and writes to the eventfd `wake`. A signal that the process ignores, as
  // background jobs of a shell do, stays ignored.
  explicit EndSignals(int wake);
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // The first signal that has come; 0 before.
  int arrived() const;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[2] = {};
};

}  // namespace headroom
