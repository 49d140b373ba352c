// Whether a child process and those that it started still compute. Knows no output of theirs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace headroom {

// The time on processors that a process and all its children have taken, in ticks; nothing where the system
// does not say.
std::optional<int64_t> ticks_of_tree(int process);

// Notices a child that waits for what never comes: a network, a lock, a terminal.
class IdleWatch {
 public:
  using Clock = std::chrono::steady_clock;

  IdleWatch(int process, std::chrono::milliseconds patience) : process_(process), patience_(patience) {}
  // Whether nothing was computed for so long. Ask about once a second.
  bool is_idle();

 private:
  const int process_;
  const std::chrono::milliseconds patience_;
  std::optional<int64_t> ticks_;
  Clock::time_point busy_ = Clock::now();  // when they had grown last
};

// Waits until a file of a child has something to read, or an end; false where the child is idle instead.
bool can_read(int file, int child, std::chrono::milliseconds patience);

}  // namespace headroom
