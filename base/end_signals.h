// Notes SIGINT and SIGTERM instead of ending the process at once, so that it can save its work.
#pragma once

#include <csignal>

namespace headroom {

// One at a time in a process.
class EndSignals {
 public:
  enum class Second { kIsIgnored, kEndsTheProcess };
  // From now on each signal is noted and writes to the eventfd `wake`, if there is one (not negative). A
  // signal that the process ignores, as background jobs of a shell do, stays ignored.
  explicit EndSignals(int wake = -1, Second second = Second::kEndsTheProcess);
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // The first signal that has come; 0 before.
  int arrived() const;
  // From now on signals do nothing, until the end of the process: its work is done.
  void ignore_from_now();

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[2] = {};
  bool ignores_ = false;
};

}  // namespace headroom
