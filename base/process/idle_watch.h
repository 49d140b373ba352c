// Watches if a child process and its descendants still compute. Knows nothing about their output.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace headroom {

// Returns the CPU time of a process and all its children, in ticks; nullopt if the system does not report it.
std::optional<int64_t> ticks_of_tree(int process);

// Detects a child that waits forever: for a network, a lock, a terminal.
class IdleWatch {
 public:
  using Clock = std::chrono::steady_clock;

  IdleWatch(int process, std::chrono::milliseconds patience) : process_(process), patience_(patience) {}
  // Returns true if nothing was computed for that long. Call it about once a second.
  bool is_idle();

 private:
  const int process_;
  const std::chrono::milliseconds patience_;
  std::optional<int64_t> ticks_;
  Clock::time_point busy_ = Clock::now();  // when they had grown last
};

// Waits until a child's file has something to read, or ends; returns false if the child is idle instead.
bool can_read(int file, int child, std::chrono::milliseconds patience);

}  // namespace headroom
